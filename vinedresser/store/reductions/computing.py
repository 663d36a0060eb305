"""Statistics of a numpy array, as a whole or by channel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.store.reductions.alone import UNITS, fingerprint
from vinedresser.store.reductions.elementwise import elementwise_statistics
from vinedresser.store.reductions.naming import parse_reduction, plan_reductions
from vinedresser.store.reductions.sampling import sample_rows, some_rows
from vinedresser.store.reductions.statistics import Statistics

__all__ = ["channel_axis", "compute_statistics", "reduce_array"]

# Tensors without a batch axis; their channels are the outputs of a layer.
_OF_THE_MODEL = (
    "weights",
    "biases",
    "gradients",
    "updates",
    "optimizer_state",
    "buffers",
    "weight_taylor",
)


def reduce_array(array: NDArray[np.generic], words: Iterable[str]) -> dict[str, float]:
    """Return scalar statistics of an array, computed in float64.

    Args:
        array: any shape; any real, boolean or complex dtype, including those of `ml_dtypes`.
        words: reductions such as "l2" or "abs_p99"; see `vinedresser.store.reductions`.

    Raises:
        ConfigError: no such reduction, or it is not a scalar.
    """
    words = list(words)
    for word in words:
        if parse_reduction(word).vector:
            raise ConfigError(f"reductions: {word} is a vector; use a scalar reduction")
    statistics = compute_statistics(array, frozenset(words), None)
    for error in statistics.settle().values():
        raise error
    return {word: statistics.scalars[word] for word in words}


def compute_statistics(
    array: NDArray[np.generic], words: frozenset[str], axis: int | None
) -> Statistics:
    """Compute statistics of an array, which may change afterwards.

    Expensive statistics are left pending; only their sample is copied.

    Args:
        array: any shape; any real, boolean or complex dtype, including those of `ml_dtypes`.
        words: names of reductions.
        axis: channel axis; see `channel_axis`.

    Raises:
        ConfigError: no such reduction.
    """
    wanted = plan_reductions(words)
    found = Statistics(bool(wanted.late))
    whole = array.reshape(1, -1)
    if wanted.elementwise:
        values = elementwise_statistics(whole, wanted.elementwise_names)
        for word in wanted.elementwise:
            found.scalars[word.text] = float(values[word.canonical][0])
    if wanted.sampled:
        found.samples.append((wanted.sampled, sample_rows(whole)))
    if wanted.by_channel:
        rows = _channel_rows(array, axis)
        if wanted.channels:
            values = elementwise_statistics(rows, wanted.channel_names)
            found.vectors = {word.text: values[word.canonical] for word in wanted.channels}
        if wanted.channels_sampled:
            found.samples.append((wanted.channels_sampled, sample_rows(rows)))
        if wanted.units:
            found.samples.append((wanted.units, sample_rows(some_rows(rows, UNITS))))
    for word in wanted.bits:
        found.scalars[word.text] = fingerprint(array)
    return found


def channel_axis(name: str, dimensions: int, *, last: bool = False) -> int | None:
    """Return the channel axis of a tensor.

    For weights, biases, gradients, updates, optimizer state and buffers, it is the axis of the
    layer's outputs: the first (PyTorch) or the last (Keras). All other tensors have the batch
    first, and then channels (or classes), or, in Keras, channels last. Attention has its heads
    second in all frameworks.

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
    return dimensions - 1 if last and not name.startswith("attention/") else 1


def _channel_rows(array: NDArray[np.generic], axis: int | None) -> NDArray[np.generic]:
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
