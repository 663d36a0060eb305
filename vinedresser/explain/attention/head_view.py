"""The head view: lines from each query to the keys that it attends to.

Shape legend: L queries, S keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import shortened

__all__ = ["LEAST_WEIGHT", "MOST_KEYS", "head_view"]

# Lines of a query: its largest weights, from this weight on.
MOST_KEYS, LEAST_WEIGHT = 4, 0.05
# Lines are drawn in classes of weights, each in one path, which keeps the page small.
_EDGES = (LEAST_WEIGHT, 0.15, 0.35, 0.65, 1.0 + 1e-9)
_LINE, _CHARACTER, _LONGEST = 13.0, 6.1, 14
_SPAN = 90.0


def head_view(
    weights: NDArray[np.float64], queries: Sequence[str], keys: Sequence[str], label: str
) -> Svg:
    """Return a chart with queries on the left and keys on the right.

    Args:
        weights: attention of one head, float64 [L, S]; NaN for masked queries, whose token is
            struck through and has no lines.
        queries: tokens of the queries, L strings.
        keys: tokens of the keys, S strings.
        label: accessible name of the chart.
    """
    left = 8.0 + _CHARACTER * min(_LONGEST, max(map(len, queries)))
    right = left + _SPAN
    width = right + 8.0 + _CHARACTER * min(_LONGEST, max(map(len, keys)))
    masked = np.isnan(weights[:, 0])
    words = [
        element(
            "text",
            shortened(token, _LONGEST),
            x=left - 5,
            y=_LINE * (place + 0.8),
            class_="y masked" if masked[place] else "y",
        )
        for place, token in enumerate(queries)
    ]
    words += [
        element("text", shortened(token, _LONGEST), x=right + 5, y=_LINE * (place + 0.8))
        for place, token in enumerate(keys)
    ]
    lines = [
        element("path", d=drawn, class_="w", stroke_opacity=low**0.5)
        for low, high in pairwise(_EDGES)
        if (drawn := _lines(weights, low, high, left, right))
    ]
    height = _LINE * max(len(queries), len(keys)) + 4
    style = f"max-width:{width:.0f}px"
    return chart(label, width, height, *lines, *words, kind="head", style=style)


def _lines(weights: NDArray[np.float64], low: float, high: float, left: float, right: float) -> str:
    """Return the path of the lines with weights in [low, high)."""
    found = []
    for query, row in enumerate(np.nan_to_num(weights)):
        for key in np.argsort(-row, kind="stable")[:MOST_KEYS].tolist():
            if low <= row[key] < high:
                start, end = _LINE * (query + 0.5), _LINE * (key + 0.5)
                found.append(f"M{left:.0f} {start:g}L{right:.0f} {end:g}")
    return "".join(found)
