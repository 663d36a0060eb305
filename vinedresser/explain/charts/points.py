"""Pairs of numbers as points between axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, nice_scale
from vinedresser.explain.charts.scatter import hue
from vinedresser.explain.charts.svg import Svg, chart, element

_ROOM = 8.0


def points_chart(x: NDArray[np.float64], y: NDArray[np.float64], size: Size, label: str) -> Svg:
    """Return a chart of points; pairs that are not finite are left out.

    Args:
        x: float64 [N].
        y: float64 [N].
        size: size of the plot.
        label: accessible name of the chart.
    """
    bottom = _ROOM + size.height
    frame = Frame(
        nice_scale(x, size.left, size.width - size.right),
        nice_scale(y, bottom, _ROOM),
        _ROOM,
        bottom,
    )
    across, up = frame.x(x), frame.y(y)
    shown = np.isfinite(across) & np.isfinite(up)
    # A line of length 0 with round ends is a dot.
    dots = "".join(
        f"M{one:.1f} {other:.1f}h0" for one, other in zip(across[shown], up[shown], strict=True)
    )
    drawn = element("path", d=dots, stroke=hue(0), stroke_width=4, stroke_linecap="round")
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=bool(shown.any())),
        *([drawn] if dots else []),
        kind="points",
    )
