"""A sample of rows that needs no random numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["strided_rows"]


def strided_rows(rows: int, most: int) -> NDArray[np.int64] | None:
    """Return evenly strided row numbers, ascending; None where all rows are few enough.

    Args:
        rows: how many there are.
        most: how many may be taken, at least 1.
    """
    if rows <= most:
        return None
    return np.linspace(0, rows - 1, most).round().astype(np.int64)
