"""What the channels of a tensor are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["channel_axis", "channel_rows"]

# What belongs to the model and not to a batch: channels are those that a layer puts out.
_OF_THE_MODEL = ("weights", "biases", "gradients", "updates", "optimizer_state", "buffers")


def channel_axis(name: str, dimensions: int, *, last: bool = False) -> int | None:
    """Return which axis of a tensor counts its channels.

    Of weights, biases, gradients, updates, optimizer state and buffers it is that of the layer's
    outputs: the first (in PyTorch's layout), or the last (in that of Keras). Everything else has
    the batch first, and then channels (or attention heads, classes), or, in Keras, channels last.

    Args:
        name: of the tensor, with its kind.
        dimensions: how many it has.
        last: the framework has channels last.

    Returns:
        The axis, from 0; None where the tensor as a whole is its only channel: a number, or a
        batch of numbers.
    """
    if name.partition("/")[0] in _OF_THE_MODEL:
        if not dimensions:
            return None
        return dimensions - 1 if last else 0
    if dimensions < 2:
        return None
    return dimensions - 1 if last else 1


def channel_rows(array: NDArray[np.generic], axis: int | None) -> NDArray[np.generic]:
    """Return an array as [C, m], a row for each channel; a view where that is possible.

    Args:
        array: any shape.
        axis: of its channels; None: it is one channel as a whole.
    """
    if axis is None:
        return array.reshape(1, -1)
    moved = np.moveaxis(array, axis, 0)
    channels = len(moved)
    return moved.reshape(channels, moved.size // channels if channels else 0)
