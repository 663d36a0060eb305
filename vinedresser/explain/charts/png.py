"""Small pictures as ``data:`` URLs, so that a page needs no file besides itself."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["colour_png", "palette_png"]

# Colour types of the PNG specification (W3C, second edition, 11.2.2).
_TRUE_COLOUR, _INDEXED = 2, 3


def palette_png(indices: NDArray[np.uint8], colours: NDArray[np.uint8]) -> str:
    """Return a picture in the colours of a palette, one pixel a cell; index 0 is transparent.

    Args:
        indices: uint8, [H, W].
        colours: uint8, [256, 3].
    """
    palette = [_chunk(b"PLTE", colours.tobytes()), _chunk(b"tRNS", b"\x00")]
    return _url(indices, indices.shape[1], _INDEXED, palette)


def colour_png(pixels: NDArray[np.float64]) -> str:
    """Return a colour picture.

    Args:
        pixels: float64, [H, W, 3], from 0 to 1.
    """
    bytes_ = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    return _url(bytes_.reshape(len(bytes_), -1), pixels.shape[1], _TRUE_COLOUR, [])


def _url(rows: NDArray[np.uint8], width: int, kind: int, palette: list[bytes]) -> str:
    """Return a picture of rows of bytes, uint8, [H, bytes]."""
    height = len(rows)
    # Each row begins with its filter type, 0: none.
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    content = b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
            *palette,
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        ]
    )
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
