"""Looking at a torch tensor as a numpy array without leaving a mark on it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["host_view"]


def host_view(tensor: torch.Tensor) -> NDArray[np.generic]:
    """Return a tensor's memory as an array, for reading.

    `torch.Tensor.numpy` would mark the tensor's storage as not resizable for ever, whereupon a
    training that resizes it, such as under `fully_shard`, raises.

    Args:
        tensor: detached, dense, on the CPU, of a dtype that numpy has.
    """
    array: NDArray[np.generic] = np.from_dlpack(tensor)  # type: ignore[arg-type, unused-ignore]
    return array
