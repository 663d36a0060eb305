"""Tensors as images, and PNG encoding of small pictures.

Shape legend: N samples, C channels, H height, W width, O output channels, I input channels.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOT_FINITE", "colour_png", "data_url", "mosaic", "palette_png", "tile_images"]

# Colour types of the PNG specification (W3C, second edition, 11.2.2).
_TRUE_COLOUR, _INDEXED = 2, 3
# Tiles that can be told apart on a screen.
_MOST_ROWS = 16
_MOST_COLUMNS = 16
_COLOURS = 3
# Red for values that are not finite, as in the reports.
NOT_FINITE = (0.898, 0.220, 0.231)


def palette_png(indices: NDArray[np.uint8], colours: NDArray[np.uint8]) -> bytes:
    """Encode palette indices, one pixel per cell; index 0 is transparent.

    Args:
        indices: uint8 [H, W].
        colours: the palette, uint8 [256, 3].
    """
    palette = [_chunk(b"PLTE", colours.tobytes()), _chunk(b"tRNS", b"\x00")]
    return _png(indices, indices.shape[1], _INDEXED, palette)


def colour_png(pixels: NDArray[np.float64]) -> bytes:
    """Encode a colour picture.

    Args:
        pixels: float64 [H, W, 3], values from 0 to 1.
    """
    bytes_ = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    return _png(bytes_.reshape(len(bytes_), -1), pixels.shape[1], _TRUE_COLOUR, [])


def data_url(png: bytes) -> str:
    """Return a PNG as a ``data:`` URL, which embeds it in a page or an SVG."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(rows: NDArray[np.uint8], width: int, kind: int, palette: list[bytes]) -> bytes:
    """Encode rows of bytes, uint8 [H, bytes per row]."""
    height = len(rows)
    # Each row begins with its filter type, 0: none.
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
            *palette,
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def tile_images(
    value: NDArray[Any], *, filters: bool = False, channels_last: bool = False
) -> list[list[NDArray[np.float64]]]:
    """Return a tensor as rows of tiles with values from 0 to 1, NaN where not finite.

    Each filter is scaled separately, with 0 in the middle; a batch is scaled as a whole, from its
    minimum to its maximum. At most the first 16 rows of 16 tiles are returned.

    Args:
        value: any real dtype. Filters: [O, I, H, W], or [H, W, I, O] if ``channels_last``.
            A batch: [N, C, H, W], or [N, H, W, C] if ``channels_last``, or [N, H, W]; or one
            image [H, W].
        filters: the tensor contains the weights of a convolution.
        channels_last: the channels are the last axis.

    Returns:
        Rows of tiles, float64 [H, W] or [H, W, 3]. Three channels make a colour image, one channel
        a grey one; other numbers of channels give each sample or filter its own row.

    Raises:
        ValueError: the shape does not make an image.
    """
    if not 2 <= value.ndim <= 4 or (filters and value.ndim != 4):
        raise ValueError(f"a tensor of shape {list(value.shape)} is not an image")
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
    """Arrange tiles of one size in one colour image, with white gaps.

    Args:
        rows: rows of tiles from `tile_images`.

    Returns:
        float64 [H, W, 3], from 0 to 1; values that are not finite are red.
    """
    height, width = rows[0][0].shape[:2]
    # Larger tiles need wider gaps.
    gap = 1 + max(height, width) // 32
    columns = max(map(len, rows))
    size = (len(rows) * (height + gap) - gap, columns * (width + gap) - gap, _COLOURS)
    picture = np.ones(size)
    for row, tiles in enumerate(rows):
        for column, tile in enumerate(tiles):
            top, left = row * (height + gap), column * (width + gap)
            colours = tile if tile.ndim == 3 else np.repeat(tile[:, :, None], _COLOURS, axis=2)
            broken = np.asarray(np.isnan(colours)).any(axis=2, keepdims=True)
            shown = np.where(broken, NOT_FINITE, np.clip(colours, 0, 1))
            picture[top : top + height, left : left + width] = shown
    return picture


def _ordered(
    value: NDArray[np.float64], *, filters: bool, channels_last: bool
) -> NDArray[np.float64]:
    """Return a copy with axes [N, C, H, W], or [O, I, H, W] for filters; float64."""
    if value.ndim == 2:
        return value[None, None].copy()
    if value.ndim == 3:
        return value[:, None].copy()
    if not channels_last:
        return value.copy()
    return np.transpose(value, (3, 2, 0, 1) if filters else (0, 3, 1, 2)).copy()


def _centred(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each filter by its greatest magnitude, with 0 at 0.5; float64 [O, I, H, W]."""
    magnitudes = np.nan_to_num(np.abs(stack)).reshape(len(stack), -1)
    greatest = magnitudes.max(axis=1, initial=0.0)
    greatest[greatest == 0] = 1.0
    return np.asarray(0.5 + 0.5 * stack / greatest[:, None, None, None])


def _spread(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale a batch from its minimum to its maximum; float64 [N, C, H, W]."""
    finite = stack[~np.isnan(stack)]
    if not finite.size:
        return stack
    least, greatest = finite.min(), finite.max()
    return np.asarray((stack - least) / (greatest - least if greatest > least else 1.0))


def _wrapped(tiles: list[NDArray[np.float64]]) -> list[list[NDArray[np.float64]]]:
    """Arrange tiles, float64 [H, W] or [H, W, 3], in about as many rows as columns."""
    shown = tiles[: _MOST_ROWS * _MOST_COLUMNS]
    width = min(int(np.ceil(np.sqrt(len(shown)))), _MOST_COLUMNS) or 1
    return [shown[start : start + width] for start in range(0, len(shown), width)]
