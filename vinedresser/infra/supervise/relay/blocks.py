"""Reading files of any size in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vinedresser.errors import NotAFile, StoreError
from vinedresser.objects.files import open_file

_BLOCK = 64 << 20


def blocks(root: str | os.PathLike[str], key: str) -> Iterator[bytes]:
    """Yield the content of a file, at most 64 MiB at a time.

    Args:
        root: the run's local directory.
        key: name of the file below it.

    Raises:
        FileNotFoundError: the file does not exist.
        NotAFile: it is something else, such as a symbolic link.
        StoreError: it cannot be read for another reason.
    """
    try:
        with open(open_file(root, key), "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                yield block
    except (FileNotFoundError, NotAFile):
        raise
    except OSError as error:
        raise StoreError(f"{os.fspath(root)}/{key}: {error.strerror}") from error
