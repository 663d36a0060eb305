"""Charts of a monitor: evidence over the windows, and each feature against its baseline."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Scale, Size, grid, step_axis
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import shortened

__all__ = ["categories_chart", "evidence_chart", "values_chart"]

_TOP = 10.0
_BINS = 30
_MOST_CATEGORIES = 10
# Share of the values that may lie beyond either end of the axis.
_BEYOND = 0.005


def evidence_chart(
    evidence: dict[str, NDArray[np.float64]], needed: float, first: int, size: Size
) -> Svg:
    """Return the evidence of features over the windows, and what raises an alarm.

    Args:
        evidence: log10 of it by name of the feature, float64 [windows].
        needed: log10 of the evidence that raises an alarm.
        first: number of the first window.
        size: size of the chart.
    """
    count = max(map(len, evidence.values()), default=1)
    bottom = _TOP + size.height
    highest = max([needed, *(float(np.nanmax(one, initial=0.0)) for one in evidence.values())])
    lowest = min([0.0, *(float(np.nanmin(one, initial=0.0)) for one in evidence.values())])
    x = step_axis((first, first + count - 1), size)
    frame = Frame(x, Scale(lowest, 1.06 * highest, bottom, _TOP), _TOP, bottom)
    windows = np.arange(first, first + count)
    alarm = float(frame.y(needed))
    place = {"x1": size.left, "x2": size.width - size.right, "y1": alarm, "y2": alarm}
    lines = [
        element(
            "path",
            element("title", name),
            d=path_data(frame.x(windows[-len(one) :]), frame.y(one)),
            class_="trend",
        )
        for name, one in evidence.items()
    ]
    return chart(
        "evidence of drift over the windows",
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        element("line", class_="limit", **place),
        *lines,
    )


def values_chart(
    before: NDArray[np.float64], now: NDArray[np.float64], size: Size, label: str
) -> Svg:
    """Return the distribution of a number in a window, over that in the baseline.

    Args:
        before: values of the baseline [N]; NaN is left out.
        now: values of the window [M].
        size: size of the chart.
        label: accessible name of the chart.
    """
    before, now = before[np.isfinite(before)], now[np.isfinite(now)]
    both = np.concatenate([before, now])
    low, high = np.quantile(both, [_BEYOND, 1 - _BEYOND]) if both.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = [_shares(one, edges) for one in (before, now)]
    bottom = _TOP + size.height
    x = Scale(float(edges[0]), float(edges[-1]), size.left, size.width - size.right)
    top = 100 * max([float(one.max()) for one in shares] + [0.01])
    frame = Frame(x, Scale(0.0, 1.06 * top, bottom, _TOP), _TOP, bottom)
    filled = "".join(
        f"M{left:.2f} {bottom:g}V{height:.2f}H{right:.2f}V{bottom:g}Z"
        for left, right, height in zip(
            x(edges[:-1]), x(edges[1:]), frame.y(100 * shares[0]), strict=True
        )
    )
    steps = path_data(np.repeat(x(edges), 2)[1:-1], np.repeat(frame.y(100 * shares[1]), 2))
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        element("path", d=filled, class_="bars"),
        element("path", d=steps, class_="now"),
    )


def categories_chart(before: NDArray[Any], now: NDArray[Any], size: Size, label: str) -> Svg:
    """Return the shares of categories in a window beside those in the baseline.

    Args:
        before: categories of the baseline, None where missing [N].
        now: categories of the window [M].
        size: size of the chart.
        label: accessible name of the chart.
    """
    counts = [Counter(_category(one) for one in values.tolist()) for values in (before, now)]
    shares = [
        {name: 100 * count / max(len(values), 1) for name, count in found.items()}
        for found, values in zip(counts, (before, now), strict=True)
    ]
    largest = {name: max(one.get(name, 0.0) for one in shares) for one in shares for name in one}
    shown = sorted(largest, key=lambda name: -largest[name])[:_MOST_CATEGORIES]
    bottom = _TOP + size.height
    frame = Frame(
        Scale(0.0, float(max(len(shown), 1)), size.left, size.width - size.right),
        Scale(0.0, 1.06 * max([*largest.values(), 1.0]), bottom, _TOP),
        _TOP,
        bottom,
    )
    drawn = []
    for place, name in enumerate(shown):
        for part, (share, kind) in enumerate(zip(shares, ("bars", "now-bar"), strict=True)):
            left = float(frame.x(place + 0.15 + 0.35 * part))
            right = float(frame.x(place + 0.48 + 0.35 * part))
            height = float(frame.y(share.get(name, 0.0)))
            drawn.append(
                element(
                    "rect",
                    element("title", f"{name}: {share.get(name, 0.0):.1f} %"),
                    x=left,
                    y=height,
                    width=right - left,
                    height=bottom - height,
                    class_=kind,
                )
            )
        drawn.append(
            element(
                "text",
                shortened(name, 9),
                x=float(frame.x(place + 0.5)),
                y=bottom + 15,
                class_="tick x",
            )
        )
    # The categories are labelled one by one.
    unlabelled = frame._replace(x=Scale(0.1, 0.9, size.left, size.width - size.right, whole=True))
    lines = grid(unlabelled, size, values=True)
    return chart(label, size.width, bottom + TICK_ROOM, *lines, *drawn)


def _shares(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the values in each bin; those beyond count in the outermost ones."""
    inside = np.clip(values, edges[0], edges[-1])
    counts: NDArray[np.float64] = np.histogram(inside, edges)[0] / max(len(values), 1)
    return counts


def _category(value: object) -> str:
    return "missing" if value is None else str(value)
