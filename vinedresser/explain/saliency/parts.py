"""Contributions of features and tokens, as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.formatting import number
from vinedresser.explain.saliency.result import Saliency
from vinedresser.store.reading.reader import Run

__all__ = ["contributions", "largest_parts", "part_name"]

_MOST_PARTS = 6


def contributions(result: Saliency, place: int) -> NDArray[np.float64]:
    """Return the contribution of each feature or token of an example, float64 [parts].

    Args:
        result: an explanation whose method attributes the output to the inputs.
    """
    assert result.attributions is not None, "only Grad-CAM has none"
    return np.asarray(result.attributions[place], np.float64).ravel()


def part_name(run: Run, example: NDArray[Any], place: int) -> str:
    """Return a feature with its value, or a token.

    Args:
        run: the run, which may know the names of the features.
        example: features, or integers: token ids.
        place: number of the feature or token.
    """
    value = example.ravel()[place]
    if example.dtype.kind in "iu":
        return f"{place}: {value}"
    features = run.info.features
    name = features[place] if len(features) == example.size else str(place)
    return f"{name} = {number(float(value), 3)}"


def largest_parts(run: Run, example: NDArray[Any], result: Saliency, place: int) -> list[str]:
    """Return the parts of an example with the largest contributions, in order, with these.

    Args:
        result: an explanation.
        place: number of the example in it.
    """
    parts = contributions(result, place)
    if len(parts) != example.size:
        # Such as the sum over the width of an image.
        return []
    order = np.argsort(-np.abs(parts), kind="stable")[:_MOST_PARTS].tolist()
    return [f"{part_name(run, example, one)}: {number(float(parts[one]), 3)}" for one in order]
