"""The lines of a training's output."""

from __future__ import annotations

import sys
import time

from vinedresser.errors import KeyMissing
from vinedresser.infra.supervise.supervisor.output_log import LineSplitter
from vinedresser.objects import LocalStorage, Storage
from vinedresser.plain_text import visible
from vinedresser.store.status import run_status

_CHUNK = 1 << 20
# Seconds between two looks for more, on this machine and in a store that answers slowly.
_TICKS = {True: 0.1, False: 2.0}


def print_log(storage: Storage, key: str, *, follow: bool) -> None:
    """Print the lines of a log; control characters are visible.

    Args:
        key: key of the log.
        follow: print what is added, too, until the run is over.

    Raises:
        NotARun: there is no run.
        StoreError: the storage refused a request.
    """
    lines, start = LineSplitter(), 0
    while True:
        # In this order: nothing is added after the end.
        over = not follow or run_status(storage).over
        while chunk := _read(storage, key, start):
            start += len(chunk)
            _print(lines.feed(chunk))
        if over:
            _print(lines.close())
            return
        time.sleep(_TICKS[isinstance(storage, LocalStorage)])


def _read(storage: Storage, key: str, start: int) -> bytes:
    """Return the next bytes of a log; b"" if there are none yet."""
    try:
        if isinstance(storage, LocalStorage):
            return storage.get(key, start, _CHUNK)
        # An object store refuses a range that begins at the end.
        return storage.get(key)[start:]
    except KeyMissing:
        return b""


def _print(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{visible(line)}\n" for line in lines))
    sys.stdout.flush()
