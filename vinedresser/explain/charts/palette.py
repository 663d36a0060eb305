"""Colour scale for values that span decades, and images in its colours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.images import data_url, palette_png
from vinedresser.explain.charts.svg import Svg, element

__all__ = [
    "FIRST_LEVEL",
    "LEVELS",
    "NONE",
    "NOT_FINITE",
    "ZERO",
    "colour",
    "colour_bar",
    "indexed_png",
]

# Palette indices with a special meaning; the levels follow.
NONE, NOT_FINITE, ZERO = 0, 1, 2
LEVELS = 253
FIRST_LEVEL = 3

# Lightness grows evenly, which is readable without colour vision too. Red is reserved for values
# that are not finite, grey for zero.
_STOPS = ("#241a4d", "#2c4a86", "#237e8f", "#3fae84", "#9ed36b", "#f3eea0")
_OWN = {NONE: "#000000", NOT_FINITE: "#e5383b", ZERO: "#8d939c"}


def colour(index: int) -> str:
    """Return the colour of a palette index, such as ``#237e8f``."""
    return "#" + bytes(_table()[index]).hex()


def colour_bar(width: float, ticks: Sequence[tuple[float, str]], **attributes: object) -> Svg:
    """Return the colour scale as a bar, 28 pixels high with its labels.

    Args:
        width: pixels; the bar itself lies 22 pixels from either end.
        ticks: pixel and label of each tick.
        attributes: additional attributes of the SVG element.
    """
    stops = [
        element("stop", offset=place / (len(_STOPS) - 1), stop_color=stop)
        for place, stop in enumerate(_STOPS)
    ]
    return element(
        "svg",
        element("linearGradient", *stops, id="decades"),
        element("rect", x=22, y=2, width=width - 44.0, height=9, rx=2, fill="url(#decades)"),
        *(element("text", label, x=x, y=23, class_="tick x") for x, label in ticks),
        viewBox=f"0 0 {width:g} 28",
        width=f"{width:g}",
        height="28",
        role="img",
        aria_label="Colour scale",
        **attributes,
    )


def indexed_png(indices: NDArray[np.uint8]) -> str:
    """Return an image as a ``data:`` URL, one pixel per cell.

    Args:
        indices: palette indices, uint8 [H, W]; `NONE` is transparent.
    """
    return data_url(palette_png(indices, _table()))


def _table() -> NDArray[np.uint8]:
    """Return all colours, uint8 [256, 3]."""
    rgb = np.array([list(bytes.fromhex(stop[1:])) for stop in _STOPS], dtype=np.float64)
    place = np.linspace(0, len(_STOPS) - 1, LEVELS)
    table = np.empty((256, 3), np.uint8)
    for channel in range(3):
        levels = np.interp(place, np.arange(len(_STOPS)), rgb[:, channel])
        table[FIRST_LEVEL:, channel] = np.round(levels)
    for index, own in _OWN.items():
        table[index] = list(bytes.fromhex(own[1:]))
    return table
