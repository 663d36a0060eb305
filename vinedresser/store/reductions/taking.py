"""Taking the statistics of a numpy array."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.store.reductions.channels import channel_rows
from vinedresser.store.reductions.figures import figure_rows
from vinedresser.store.reductions.fingerprint import fingerprint
from vinedresser.store.reductions.sampling import sample_rows
from vinedresser.store.reductions.statistics import Statistics
from vinedresser.store.reductions.strided_rows import some_rows
from vinedresser.store.reductions.units import UNITS
from vinedresser.store.reductions.words import parse_word, plan

__all__ = ["reduce_array", "take_statistics"]


def reduce_array(array: NDArray[np.generic], words: Iterable[str]) -> dict[str, float]:
    """Return statistics of an array that are one number each, computed in float64.

    Args:
        array: any shape; any real, boolean or complex dtype, those of `ml_dtypes` too.
        words: which, such as "l2" or "abs_p99"; see `vinedresser.store.reductions`.

    Raises:
        ConfigError: there is no such reduction, or it is not one number.
    """
    words = list(words)
    for word in words:
        if parse_word(word).vector:
            raise ConfigError(f"reductions: {word} is several numbers, where one is asked for")
    statistics = take_statistics(array, frozenset(words), None)
    for error in statistics.settle().values():
        raise error
    return {word: statistics.figures[word] for word in words}


def take_statistics(
    array: NDArray[np.generic], words: frozenset[str], axis: int | None
) -> Statistics:
    """Take statistics of an array, which may change afterwards; of dear ones only their sample.

    Args:
        array: any shape; any real, boolean or complex dtype, those of `ml_dtypes` too.
        words: which.
        axis: of its channels; see `channel_axis`.

    Raises:
        ConfigError: there is no such reduction.
    """
    wanted = plan(words)
    found = Statistics(bool(wanted.late))
    whole = array.reshape(1, -1)
    if wanted.figures:
        values = figure_rows(whole, wanted.figure_names)
        for word in wanted.figures:
            found.figures[word.text] = float(values[word.figure][0])
    if wanted.sampled:
        found.samples.append((wanted.sampled, sample_rows(whole)))
    if wanted.by_channel:
        rows = channel_rows(array, axis)
        if wanted.channels:
            values = figure_rows(rows, wanted.channel_names)
            found.vectors = {word.text: values[word.figure] for word in wanted.channels}
        if wanted.channels_sampled:
            found.samples.append((wanted.channels_sampled, sample_rows(rows)))
        if wanted.units:
            found.samples.append((wanted.units, sample_rows(some_rows(rows, UNITS))))
    for word in wanted.bits:
        found.figures[word.text] = fingerprint(array)
    return found
