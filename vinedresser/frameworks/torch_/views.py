"""Numpy views of torch tensors, and selections of their rows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["chosen", "host_view", "plain_tensor", "row_index", "some_rows"]

_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def host_view(tensor: torch.Tensor) -> NDArray[np.generic]:
    """Return a view of a tensor as an array of the same shape, for reading.

    `torch.Tensor.numpy` would mark the storage as not resizable, which breaks trainings that resize
    it, such as with `fully_shard`.

    Args:
        tensor: detached, dense, on the CPU; any shape, and a dtype that numpy has.
    """
    array: NDArray[np.generic] = np.from_dlpack(tensor)  # type: ignore[arg-type, unused-ignore]
    return array


def plain_tensor(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor detached, dense, and as this process's shard."""
    plain = value.detach()
    if type(plain) is not torch.Tensor and hasattr(plain, "to_local"):
        plain = plain.to_local()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    return plain.resolve_conj().resolve_neg() if plain.is_complex() else plain


def some_rows(tensor: torch.Tensor, most: int | None) -> torch.Tensor:
    """Return evenly spaced rows of a tensor, or the tensor if it has no more than `most` rows.

    Args:
        tensor: detached and dense; [N, ...] or [].
        most: maximum number of rows; None: all.
    """
    if most is None or not tensor.dim() or len(tensor) <= most:
        return tensor
    return chosen(tensor, 0, row_index(len(tensor), most, tensor.device))


def chosen(tensor: torch.Tensor, axis: int, index: torch.Tensor) -> torch.Tensor:
    """Return the slices of a tensor at some indices of an axis.

    Args:
        tensor: detached and dense; any shape and dtype.
        axis: axis to index.
        index: int64 [k], on the tensor's device.
    """
    # As integers of the same size: not every dtype can be indexed on every device.
    carried = tensor.view(_CARRIERS.get(tensor.itemsize, tensor.dtype))
    return carried.index_select(axis, index).view(tensor.dtype)


@lru_cache(maxsize=64)
def row_index(rows: int, most: int, device: torch.device) -> torch.Tensor:
    """Return the indices of evenly spaced rows, int64 [k]; cached on the device.

    A copy to the device would wait for its pending work.

    Args:
        rows: number of rows, more than `most`.
        most: maximum number of rows to select.
        device: device of the tensor.
    """
    places = strided_rows(rows, most)
    assert places is not None, "rows > most"
    with torch.inference_mode(False):
        return torch.from_numpy(places).to(device)
