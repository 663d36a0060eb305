"""A histogram as bars."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid
from vinedresser.explain.charts.markers import marker_room
from vinedresser.explain.charts.scale import Scale
from vinedresser.explain.charts.svg import Svg, chart, element


def bar_chart(counts: NDArray[np.int64], edges: NDArray[np.float64], size: Size, label: str) -> Svg:
    """Return a histogram: values to the right, counts upwards.

    Args:
        counts: elements in each bin, int64 [B].
        edges: edges of the bins, float64 [B + 1], ascending.
        size: size of the chart.
        label: accessible name of the chart.
    """
    top = marker_room([])
    bottom = top + size.height
    x = Scale(float(edges[0]), float(edges[-1]), size.left, size.width - size.right)
    y = Scale(0.0, float(max(counts.max(), 1)) * 1.06, bottom, top, whole=True)
    bars = "".join(
        f"M{left:.2f} {bottom:g}V{height:.2f}H{right:.2f}V{bottom:g}Z"
        for left, right, height in zip(x(edges[:-1]), x(edges[1:]), y(counts), strict=True)
        if height < bottom
    )
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(Frame(x, y, top, bottom), size, values=True),
        element("path", d=bars, class_="bars"),
    )
