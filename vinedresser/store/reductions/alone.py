"""Reductions that take no prefix: fingerprint and similarity of units."""

from __future__ import annotations

import numpy as np
from fastcrc import crc32
from numpy.typing import NDArray

from vinedresser.store.reductions.elementwise import widened

__all__ = ["UNITS", "fingerprint", "unit_similarity"]


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


# Maximum number of units compared.
UNITS = 64


def unit_similarity(units: NDArray[np.generic]) -> float:
    """Return the median over units of the greatest absolute cosine with any other unit.

    ``median_i max_{j != i} |<u_i, u_j>| / (|u_i| |u_j|)``, from 0 to 1; 1 if the units are copies
    of each other up to a factor. Two all-zero units count as equal, an all-zero unit and another as
    orthogonal. NaN for fewer than two units, for units of fewer than two elements, and if an
    element is not finite.

    Args:
        units: [units, elements], any real or complex dtype.
    """
    wide = widened(units)
    if wide.shape[0] < 2 or wide.shape[1] < 2 or not np.isfinite(wide).all():
        return np.nan
    greatest = np.abs(wide).max(axis=1, keepdims=True)
    # Divide by the largest element first: squares may overflow.
    wide = np.divide(wide, greatest, out=wide, where=greatest > 0)
    norms = np.sqrt(np.vecdot(wide, wide))[:, None]
    wide = np.divide(wide, norms, out=wide, where=norms > 0)
    # Not a matrix product: BLAS would use threads that compete with the training's.
    cosines = np.minimum(np.abs(np.vecdot(wide[:, None], wide[None])), 1.0)
    zeros = norms[:, 0] == 0
    cosines[np.ix_(zeros, zeros)] = 1.0
    np.fill_diagonal(cosines, 0.0)
    return float(np.median(cosines.max(axis=1)))
