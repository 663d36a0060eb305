"""Statistics of a numpy array."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.store.reductions.alone import UNITS, fingerprint
from vinedresser.store.reductions.channels import channel_rows
from vinedresser.store.reductions.elementwise import elementwise_statistics
from vinedresser.store.reductions.naming import parse_reduction, plan_reductions
from vinedresser.store.reductions.sampling import sample_rows, some_rows
from vinedresser.store.reductions.statistics import Statistics

__all__ = ["reduce_array", "compute_statistics"]


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
        rows = channel_rows(array, axis)
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
