"""A checksum of a tensor's bits, to compare replicas."""

from __future__ import annotations

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

__all__ = ["fingerprint"]


def fingerprint(array: NDArray[np.generic]) -> float:
    """Return the CRC-32C (Castagnoli) of an array's bytes: an integer from 0 to 2^32 - 1.

    The elements are hashed in row-major order, little-endian, so the result is the same on every
    machine; the shape does not count. Zeros of different sign and NaN of different bits differ.

    Args:
        array: any shape and dtype.
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    return float(crc32.iscsi(octets.data))
