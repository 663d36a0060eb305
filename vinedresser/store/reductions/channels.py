"""The channels of a tensor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["channel_axis", "channel_rows"]

# Tensors without a batch axis; their channels are the outputs of a layer.
_OF_THE_MODEL = ("weights", "biases", "gradients", "updates", "optimizer_state", "buffers")


def channel_axis(name: str, dimensions: int, *, last: bool = False) -> int | None:
    """Return the channel axis of a tensor.

    For weights, biases, gradients, updates, optimizer state and buffers, it is the axis of the
    layer's outputs: the first (PyTorch) or the last (Keras). All other tensors have the batch
    first, and then channels (or attention heads, classes), or, in Keras, channels last.

    Args:
        name: name of the tensor, including its kind, such as "outputs/conv1".
        dimensions: number of dimensions.
        last: the framework puts channels last.

    Returns:
        The axis, from 0; None if the tensor is a single channel: a number or a batch of numbers.
    """
    if name.partition("/")[0] in _OF_THE_MODEL:
        if not dimensions:
            return None
        return dimensions - 1 if last else 0
    if dimensions < 2:
        return None
    return dimensions - 1 if last else 1


def channel_rows(array: NDArray[np.generic], axis: int | None) -> NDArray[np.generic]:
    """Return an array as [C, m], one row per channel; a view if possible.

    Args:
        array: any shape and dtype.
        axis: channel axis; None: the array is a single channel.
    """
    if axis is None:
        return array.reshape(1, -1)
    moved = np.moveaxis(array, axis, 0)
    channels = len(moved)
    return moved.reshape(channels, moved.size // channels if channels else 0)
