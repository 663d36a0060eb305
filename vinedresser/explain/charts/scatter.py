"""Points in a plane, coloured by class or value, as SVG and as pixels, or between axes."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Size, grid, nice_scale
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, colour
from vinedresser.explain.charts.svg import Svg, chart, element

__all__ = [
    "Colours",
    "class_colours",
    "hue",
    "one_colour",
    "points_chart",
    "scatter",
    "scatter_pixels",
    "value_colours",
]

_MARGIN = 8.0
# Successive hues by the golden angle, which keeps those of neighbouring numbers apart.
_GOLDEN = 0.381966


@dataclass(frozen=True)
class Colours:
    """Colours of points.

    Attributes:
        of: colour of each point, such as ``#237e8f``.
        legend: colours with their labels.
    """

    of: Sequence[str]
    legend: Sequence[tuple[str, str]]


def class_colours(labels: NDArray[np.int64], names: Sequence[str]) -> Colours:
    """Return a colour per class.

    Args:
        labels: classes of the points, int64 [N].
        names: names of the classes; others are numbered.
    """
    known = np.unique(labels).tolist()
    colours = {label: hue(place) for place, label in enumerate(known)}
    legend = [
        (colours[label], names[label] if 0 <= label < len(names) else str(label)) for label in known
    ]
    return Colours([colours[label] for label in labels.tolist()], legend)


def value_colours(values: NDArray[np.float64]) -> Colours:
    """Return colours from the lowest to the highest value, float64 [N]; grey if not finite."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    share = (np.nan_to_num(values, nan=low) - low) / ((high - low) or 1.0)
    levels = FIRST_LEVEL + np.round(np.clip(share, 0, 1) * (LEVELS - 1)).astype(int)
    of = [
        colour(int(level)) if known else "#8d939c"
        for level, known in zip(levels, np.isfinite(values), strict=True)
    ]
    ends = [(colour(FIRST_LEVEL), f"{low:.4g}"), (colour(FIRST_LEVEL + LEVELS - 1), f"{high:.4g}")]
    return Colours(of, ends)


def one_colour(count: int) -> Colours:
    """Return the same colour for all points."""
    return Colours([hue(0)] * count, [])


def scatter(
    points: NDArray[np.float64], colours: Colours, extent: float, size: float, label: str
) -> Svg:
    """Return a square chart of points, without axes: the units have no meaning.

    Args:
        points: float64 [N, 2].
        extent: largest distance from the middle that is drawn, in units of the points.
        size: pixels, before the page scales it.
        label: accessible name of the chart.
    """
    places = _pixels(points, extent, size)
    groups: dict[str, list[str]] = {}
    for (x, y), fill in zip(places.tolist(), colours.of, strict=True):
        # A line of length 0 with round ends is a dot.
        groups.setdefault(fill, []).append(f"M{x:.1f} {y:.1f}h0")
    dots = [element("path", d="".join(each), stroke=fill) for fill, each in groups.items()]
    return chart(label, size, size, *dots, kind="scatter")


def scatter_pixels(
    points: NDArray[np.float64], colours: Colours, extent: float, size: int
) -> NDArray[np.float64]:
    """Return the chart as a picture, float64 [size, size, 3], from 0 to 1."""
    picture = np.ones((size, size, 3))
    radius = max(1, size // 110)
    offsets = np.arange(-radius, radius + 1)
    disc = [
        (dy, dx) for dy in offsets for dx in offsets if dx * dx + dy * dy <= radius * radius + 1
    ]
    for (x, y), fill in zip(_pixels(points, extent, size), colours.of, strict=True):
        rgb = np.array(list(bytes.fromhex(fill[1:]))) / 255
        for dy, dx in disc:
            row, column = int(y) + dy, int(x) + dx
            if 0 <= row < size and 0 <= column < size:
                picture[row, column] = rgb
    return picture


def _pixels(points: NDArray[np.float64], extent: float, size: float) -> NDArray[np.float64]:
    """Return positions in pixels, float64 [N, 2]; the second axis points up."""
    half = size / 2
    scale = (half - _MARGIN) / (extent or 1.0)
    return np.asarray(half + points * np.array([scale, -scale]))


def hue(place: int) -> str:
    """Return the colour of a class, line or other thing, by its number."""
    lightness = (0.45, 0.6, 0.35)[place // 10 % 3]
    rgb = colorsys.hls_to_rgb((0.44 + place * _GOLDEN) % 1.0, lightness, 0.62)
    return "#" + bytes(round(255 * one) for one in rgb).hex()


def points_chart(x: NDArray[np.float64], y: NDArray[np.float64], size: Size, label: str) -> Svg:
    """Return a chart of points; pairs that are not finite are left out.

    Args:
        x: float64 [N].
        y: float64 [N].
        size: size of the plot.
        label: accessible name of the chart.
    """
    bottom = _MARGIN + size.height
    frame = Frame(
        nice_scale(x, size.left, size.width - size.right),
        nice_scale(y, bottom, _MARGIN),
        _MARGIN,
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
