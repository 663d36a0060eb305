"""Files of weights: safetensors with a checksum, and one clear error for what does not fit.

The checksum is in the metadata of the file: SHA-256 of all its bytes, with zeros in the place of
the checksum itself. It cannot be apart from the weights, and every tool reads the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from vinedresser.errors import NotAFile, PruningError
from vinedresser.objects.files import opened_path, replacing

__all__ = ["METADATA", "add_checksum", "check_shapes", "read_tensors", "reading", "write_tensors"]

_KEY, _NONE = "vinedresser.sha256", "0" * 64
METADATA = {_KEY: _NONE}
"""Metadata of a file that is to have a checksum; see `add_checksum`."""

# Largest header of a safetensors file, and bytes that are read at once.
_MOST_HEADER, _CHUNK = 100_000_000, 1 << 20


def write_tensors(tensors: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays by name to a safetensors file, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as part:
        save_file(dict(tensors), part, metadata=METADATA)
        add_checksum(part)


def add_checksum(path: Path) -> None:
    """Write the checksum into a safetensors file that was written with `METADATA`.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("r+b") as file:
        place = _place(file)
        assert place is not None, "it was written with METADATA"
        digest = _digest(file, place)
        file.seek(place)
        file.write(digest)


def _place(file: IO[bytes]) -> int | None:
    """Return the place of the checksum in a file; None if it has none."""
    file.seek(0)
    size = int.from_bytes(file.read(8), "little")
    # Names of tensors cannot contain this, as JSON escapes their quotes.
    before = f'"{_KEY}":"'.encode()
    at = file.read(min(size, _MOST_HEADER)).find(before)
    return None if at < 0 else 8 + at + len(before)


def _digest(file: IO[bytes], place: int) -> bytes:
    """Return the checksum that a file should have, in hexadecimal digits."""
    file.seek(0)
    digest = hashlib.sha256(file.read(place))
    digest.update(_NONE.encode())
    file.seek(place + len(_NONE))
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest().encode()


def _check_checksum(path: Path, opened: str) -> None:
    """Refuse a file that was changed since it was written; one without a checksum is accepted.

    Args:
        path: its path, for the message.
        opened: path of the opened file.

    Raises:
        OSError: it cannot be read.
    """
    with open(opened, "rb") as file:
        place = _place(file)
        if place is None:
            return
        expected = _digest(file, place)
        file.seek(place)
        if file.read(len(_NONE)) != expected:
            raise PruningError(
                f"{path}: damaged: its checksum does not fit its contents; write the model again, "
                "or restore the file from a copy"
            )


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a safetensors file.

    Args:
        shapes: name and shape of each array that it must have.

    Raises:
        PruningError: the file is missing or damaged, or has other arrays.
    """
    with reading(path) as opened:
        tensors = load_file(opened)
    check_shapes(path, {name: array.shape for name, array in tensors.items()}, shapes)
    return tensors


@contextmanager
def reading(path: Path) -> Iterator[str]:
    """Open a file of weights; turn the errors of reading it into one sentence.

    The checksum is checked after the body.

    Yields:
        A path of the opened file; see `opened_path`.

    Raises:
        PruningError: the file is missing, damaged or not a regular file.
    """
    try:
        # By itself, safetensors would follow a link, and wait for the other end of a FIFO.
        with opened_path(path) as opened:
            yield opened
            _check_checksum(path, opened)
    except FileNotFoundError as error:
        raise PruningError(f"{path}: no such file") from error
    except NotAFile as error:
        raise PruningError(f"the weights cannot be read: {error}") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise PruningError(f"{path}: not a readable safetensors file: {error}") from error


def check_shapes(
    path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> None:
    """Check the tensors of a file.

    Args:
        path: the file, for the message.
        found: shapes of its tensors by name.
        wanted: shapes of the model's tensors by name.

    Raises:
        PruningError: they differ.
    """
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise PruningError(
                f"{path}: {name}: has shape {_shown(found.get(name))} in the file and "
                f"{_shown(wanted.get(name))} in the model"
            )


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none (it is missing)" if shape is None else str(list(shape))
