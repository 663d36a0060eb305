"""Files of weights: safetensors, with one clear error for what does not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from vinedresser.errors import NotAFile, PruningError
from vinedresser.store.storage.files import open_file, replacing

__all__ = ["check_shapes", "read_tensors", "reading", "write_tensors"]


def write_tensors(tensors: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays by name to a safetensors file, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as part:
        save_file(dict(tensors), part)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a safetensors file.

    Args:
        path: the file.
        shapes: name and shape of each array that it must have.

    Raises:
        PruningError: the file is missing or damaged, or has other arrays.
    """
    with reading(path):
        tensors = load_file(path)
    check_shapes(path, {name: array.shape for name, array in tensors.items()}, shapes)
    return tensors


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors of reading a file of weights into one sentence.

    Raises:
        PruningError: the file is missing, damaged or not a regular file.
    """
    try:
        # safetensors would follow a link, and wait for the other end of a FIFO.
        os.close(open_file(path.parent, path.name))
        yield
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
