"""Enlarging maps, so that those of several sizes can be added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def enlarged(
    picture: NDArray[np.floating[Any]], lengths: tuple[int, ...]
) -> NDArray[np.floating[Any]]:
    """Interpolate linearly between pixels; the corners of both sizes are the same.

    Args:
        picture: [batch, pixels...], one or two dimensions of pixels.
        lengths: those of the result.
    """
    for dim, length in enumerate(lengths, 1):
        last = np.moveaxis(picture, dim, -1)
        picture = np.moveaxis(last @ _weights(picture.shape[dim], length), -1, dim)
    return picture


def _weights(before: int, after: int) -> NDArray[np.float64]:
    """Return the share of each old pixel in each new one, [before, after]."""
    places = np.linspace(0, before - 1, after)
    weights: NDArray[np.float64] = 1 - np.abs(places - np.arange(before)[:, None])
    return weights.clip(0)
