"""Colours for a figure that spans decades, and a picture in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.png import palette_png

__all__ = ["FIRST_LEVEL", "LEVELS", "NONE", "NOT_FINITE", "ZERO", "colour", "stops", "indexed_png"]

# Palette indices with a meaning of their own; the levels follow them.
NONE, NOT_FINITE, ZERO = 0, 1, 2
LEVELS = 253
FIRST_LEVEL = 3

# From faint to strong: lightness grows evenly, so that it reads without colour vision too. No red
# in it: that is kept for what is not finite; no grey: that is zero.
_STOPS = ("#241a4d", "#2c4a86", "#237e8f", "#3fae84", "#9ed36b", "#f3eea0")
_OWN = {NONE: "#000000", NOT_FINITE: "#e5383b", ZERO: "#8d939c"}


def colour(index: int) -> str:
    """Return the colour of a palette index, such as ``#237e8f``."""
    return "#" + bytes(_table()[index]).hex()


def stops() -> list[tuple[float, str]]:
    """Return the scale as stops: position from 0 to 1, colour."""
    return [(place / (len(_STOPS) - 1), stop) for place, stop in enumerate(_STOPS)]


def indexed_png(indices: NDArray[np.uint8]) -> str:
    """Return a picture as a ``data:`` URL, one pixel a cell.

    Args:
        indices: uint8, [H, W], palette indices; `NONE` is transparent.
    """
    return palette_png(indices, _table())


def _table() -> NDArray[np.uint8]:
    """Return all colours, uint8, [256, 3]."""
    rgb = np.array([list(bytes.fromhex(stop[1:])) for stop in _STOPS], dtype=np.float64)
    place = np.linspace(0, len(_STOPS) - 1, LEVELS)
    table = np.empty((256, 3), np.uint8)
    for channel in range(3):
        levels = np.interp(place, np.arange(len(_STOPS)), rgb[:, channel])
        table[FIRST_LEVEL:, channel] = np.round(levels)
    for index, own in _OWN.items():
        table[index] = list(bytes.fromhex(own[1:]))
    return table
