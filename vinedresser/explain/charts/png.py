"""PNG encoding of small pictures.

Shape legend: H, height and W, width in pixels.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["colour_png", "data_url", "palette_png"]

# Colour types of the PNG specification (W3C, second edition, 11.2.2).
_TRUE_COLOUR, _INDEXED = 2, 3


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
