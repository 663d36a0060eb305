"""Axes of a chart over the steps: plot area, grid and labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.scale import Scale
from vinedresser.explain.charts.svg import Svg, element

__all__ = ["Frame", "Size", "TICK_ROOM", "grid", "nonfinite_strokes", "step_axis"]

# Pixels below the plot for the labels of the steps.
TICK_ROOM = 22.0
_PIXELS_PER_X_TICK = 90.0
_PIXELS_PER_Y_TICK = 34.0


class Size(NamedTuple):
    """Size of a chart in pixels, before the page scales it; markers add to its height."""

    width: float
    height: float
    left: float = 52.0
    right: float = 12.0


class Frame(NamedTuple):
    """Plot area of a chart."""

    x: Scale
    y: Scale
    top: float
    bottom: float


def step_axis(extent: tuple[float, float], size: Size) -> Scale:
    """Return the horizontal axis.

    Args:
        extent: first and last step.
        size: size of the chart.
    """
    first, last = extent
    room = 0.5 if first == last else 0.0
    return Scale(first - room, last + room, size.left, size.width - size.right, whole=True)


def grid(frame: Frame, size: Size, *, values: bool) -> list[Svg]:
    """Return the axes with their labels.

    Args:
        frame: the plot area.
        size: size of the chart.
        values: label the vertical axis.
    """
    right = size.width - size.right
    drawn = []
    for tick in frame.y.ticks(int(size.height / _PIXELS_PER_Y_TICK)) if values else ():
        y = float(frame.y(tick.value))
        drawn.append(element("line", x1=size.left, x2=right, y1=y, y2=y, class_="grid"))
        drawn.append(element("text", tick.label, x=size.left - 8, y=y + 3.5, class_="tick y"))
    bottom = frame.bottom
    drawn.append(element("line", x1=size.left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    for tick in frame.x.ticks(int((right - size.left) / _PIXELS_PER_X_TICK)):
        x = float(frame.x(tick.value))
        drawn.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 3, class_="axis"))
        drawn.append(element("text", tick.label, x=x, y=bottom + 15, class_="tick x"))
    return drawn


def nonfinite_strokes(x: NDArray[np.float64], bottom: float) -> list[Svg]:
    """Return a short red stroke at the foot of the plot for each step without a finite value.

    Args:
        x: places of the steps, float64 [K], pixels.
        bottom: bottom of the plot, pixels.
    """
    strokes = "".join(f"M{place:g} {bottom - 7:g}v7" for place in np.unique(np.round(x)))
    return [element("path", d=strokes, class_="nonfinite")] if strokes else []
