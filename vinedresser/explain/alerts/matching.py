"""A sample of the baseline with the same predictions as the requests of an alert."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["matched_sample", "spread_sample"]


def matched_sample(
    wanted: Sequence[object] | NDArray[np.generic],
    given: Sequence[object] | NDArray[np.generic],
    count: int,
) -> NDArray[np.int64]:
    """Choose examples of the baseline so that their classes are those of the requests.

    Without this, a change of the classes alone would look like a change of where the model looks.
    A class that the baseline does not have, or not often enough, is left out or short.

    Args:
        wanted: class of each request.
        given: class of each example of the baseline.
        count: the most examples to choose.

    Returns:
        Indices of the baseline, int64, ascending.
    """
    random = np.random.default_rng(0)
    classes = [str(one) for one in given]
    shares = _shares([str(one) for one in wanted], count)
    chosen: list[int] = []
    for name, number in shares.items():
        there = [place for place, one in enumerate(classes) if one == name]
        chosen += random.permutation(np.array(there, np.int64))[:number].tolist()
    return np.array(sorted(chosen), np.int64)


def spread_sample(total: int, count: int) -> NDArray[np.int64]:
    """Return at most `count` places spread evenly over `total`, int64, ascending."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(np.int64))


def _shares(classes: Sequence[str], count: int) -> dict[str, int]:
    """Return how often each class should occur; the largest remainders are rounded up."""
    names, numbers = np.unique(np.array(classes), return_counts=True)
    exact = numbers * min(1.0, count / max(len(classes), 1))
    whole = np.floor(exact).astype(np.int64)
    missing = round(float(exact.sum())) - int(whole.sum())
    for place in np.argsort(whole - exact, kind="stable")[:missing]:
        whole[place] += 1
    return {str(name): int(number) for name, number in zip(names, whole, strict=True)}
