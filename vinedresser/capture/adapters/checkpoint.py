"""Saving a checkpoint atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that takes the place of a checkpoint at the end.

    Args:
        path: path of the checkpoint; its directory is created if missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    yield temporary
    os.replace(temporary, path)
