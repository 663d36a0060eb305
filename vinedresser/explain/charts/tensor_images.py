"""Tensors as pictures: convolution filters, batches of images, feature maps, attention.

Shape legend: N samples, C channels, H height, W width, O output channels, I input channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mosaic", "tile_images"]

# Tiles that are still told apart on a screen.
_MOST_ROWS = 16
_MOST_COLUMNS = 16
_COLOURS = 3
# What is not finite is red, as in the reports.
_NOT_FINITE = (0.898, 0.220, 0.231)


def tile_images(
    value: NDArray[Any], *, filters: bool = False, channels_last: bool = False
) -> list[list[NDArray[np.float64]]]:
    """Return a tensor as rows of tiles: pictures of values from 0 to 1, NaN where not finite.

    Filters are scaled one by one, so that 0 is the middle; a batch is scaled as a whole, from its
    least to its greatest element. Of what is too much to be looked at, the first is shown: at most
    16 rows of 16 tiles.

    Args:
        value: real, of 2 to 5 axes. Filters: [O, I, H, W], or [H, W, I, O] if ``channels_last``.
            Else a batch: [N, C, H, W], or [N, H, W, C] if ``channels_last``; [N, H, W]; or one
            picture [H, W].
        filters: it holds the weights of a convolution.
        channels_last: the order of the axes.

    Returns:
        Rows of tiles, float64, [H, W] or [H, W, 3]. Three channels make a colour picture, and tiles
        then follow each other; any other number gives each sample (or filter) a row of its own.

    Raises:
        ValueError: it has no axes to make a picture of.
    """
    if not 2 <= value.ndim <= 4 or (filters and value.ndim != 4):
        raise ValueError(f"a tensor of shape {list(value.shape)} is no picture")
    stack = _ordered(value.astype(np.float64), filters=filters, channels_last=channels_last)
    stack[~np.isfinite(stack)] = np.nan
    scaled = _centred(stack) if filters else _spread(stack)
    count, channels = scaled.shape[:2]
    if channels == _COLOURS:
        return _wrapped([np.moveaxis(one, 0, -1) for one in scaled])
    if channels == 1:
        return _wrapped([one[0] for one in scaled])
    return [list(one[:_MOST_COLUMNS]) for one in scaled[: min(count, _MOST_ROWS)]]


def mosaic(rows: list[list[NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Return tiles of one size laid out in one colour picture, white lines between them.

    Args:
        rows: of `tile_images`.

    Returns:
        float64, [H, W, 3], from 0 to 1; a pixel with a value that is not finite is red.
    """
    height, width = rows[0][0].shape[:2]
    # The larger a tile, the wider the line that is still seen.
    gap = 1 + max(height, width) // 32
    columns = max(map(len, rows))
    size = (len(rows) * (height + gap) - gap, columns * (width + gap) - gap, _COLOURS)
    picture = np.ones(size)
    for row, tiles in enumerate(rows):
        for column, tile in enumerate(tiles):
            top, left = row * (height + gap), column * (width + gap)
            colours = tile if tile.ndim == 3 else np.repeat(tile[:, :, None], _COLOURS, axis=2)
            broken = np.asarray(np.isnan(colours)).any(axis=2, keepdims=True)
            shown = np.where(broken, _NOT_FINITE, np.clip(colours, 0, 1))
            picture[top : top + height, left : left + width] = shown
    return picture


def _ordered(
    value: NDArray[np.float64], *, filters: bool, channels_last: bool
) -> NDArray[np.float64]:
    """Return it as [N, C, H, W], of filters as [O, I, H, W]."""
    if value.ndim == 2:
        return value[None, None].copy()
    if value.ndim == 3:
        return value[:, None].copy()
    if not channels_last:
        return value.copy()
    return np.transpose(value, (3, 2, 0, 1) if filters else (0, 3, 1, 2)).copy()


def _centred(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each filter by its greatest magnitude, 0 to the middle."""
    magnitudes = np.nan_to_num(np.abs(stack)).reshape(len(stack), -1)
    greatest = magnitudes.max(axis=1, initial=0.0)
    greatest[greatest == 0] = 1.0
    return np.asarray(0.5 + 0.5 * stack / greatest[:, None, None, None])


def _spread(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale a whole batch from its least to its greatest element."""
    finite = stack[~np.isnan(stack)]
    if not finite.size:
        return stack
    least, greatest = finite.min(), finite.max()
    return np.asarray((stack - least) / (greatest - least if greatest > least else 1.0))


def _wrapped(tiles: list[NDArray[np.float64]]) -> list[list[NDArray[np.float64]]]:
    """Lay tiles out in rows, about as many as there are columns."""
    shown = tiles[: _MOST_ROWS * _MOST_COLUMNS]
    width = min(int(np.ceil(np.sqrt(len(shown)))), _MOST_COLUMNS) or 1
    return [shown[start : start + width] for start in range(0, len(shown), width)]
