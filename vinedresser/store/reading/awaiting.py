"""Opening a run that may not have begun yet."""

from __future__ import annotations

import os
import time

from vinedresser.errors import NotARun
from vinedresser.store.reading.reader import Run, open_run

# Seconds between two attempts.
_PAUSE = 0.05


def await_run(location: str | os.PathLike[str], timeout: float) -> Run:
    """Open a run for reading, waiting until it has begun.

    Args:
        location: the run's directory or ``s3://`` URL.
        timeout: seconds to wait for it.

    Raises:
        NotARun: it has not begun in time.
        CorruptData: run.json is invalid.
        StoreError: the storage refused.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return open_run(location)
        except NotARun:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)
