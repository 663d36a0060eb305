"""Some rows of torch tensors, chosen where they lie."""

from __future__ import annotations

from functools import lru_cache

import torch

from vinedresser.store.reductions.strided_rows import strided_rows

__all__ = ["chosen", "row_index", "some_rows"]

_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def some_rows(tensor: torch.Tensor, most: int | None) -> torch.Tensor:
    """Return evenly strided rows of a tensor, or the tensor itself where it has no more.

    Args:
        tensor: detached and dense; [N, ...], or without dimensions.
        most: how many rows may be taken; None: all.
    """
    if most is None or not tensor.dim() or len(tensor) <= most:
        return tensor
    return chosen(tensor, 0, row_index(len(tensor), most, tensor.device))


def chosen(tensor: torch.Tensor, axis: int, index: torch.Tensor) -> torch.Tensor:
    """Return what of a tensor has some places along an axis.

    Args:
        tensor: detached and dense, of any dtype.
        axis: along which to choose.
        index: the places; int64, on the tensor's device.
    """
    # As integers of their size: not every dtype can be indexed on every device.
    carried = tensor.view(_CARRIERS.get(tensor.itemsize, tensor.dtype))
    return carried.index_select(axis, index).view(tensor.dtype)


@lru_cache(maxsize=64)
def row_index(rows: int, most: int, device: torch.device) -> torch.Tensor:
    """Return which rows are taken, on a device: getting it there would wait for its work.

    Args:
        rows: how many there are.
        most: how many of them may be taken, fewer.
        device: on which they lie.
    """
    places = strided_rows(rows, most)
    assert places is not None, "there are more rows than may be taken"
    with torch.inference_mode(False):
        return torch.from_numpy(places).to(device)
