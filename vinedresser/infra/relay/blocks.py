"""Reading files of any size in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["blocks"]

_BLOCK = 64 << 20


def blocks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the content of a file, at most 64 MiB at a time.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            yield block
