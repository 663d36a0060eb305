"""Numpy views of torch tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def host_view(tensor: torch.Tensor) -> NDArray[np.generic]:
    """Return a view of a tensor as an array of the same shape, for reading.

    `torch.Tensor.numpy` would mark the storage as not resizable, which breaks trainings that resize
    it, such as with `fully_shard`.

    Args:
        tensor: detached, dense, on the CPU; any shape, and a dtype that numpy has.
    """
    array: NDArray[np.generic] = np.from_dlpack(tensor)  # type: ignore[arg-type, unused-ignore]
    return array
