"""Rows of a table, with what is to be predicted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from vinedresser.store.reductions.strided_rows import strided_rows

__all__ = ["Sample", "dense"]


@dataclass(frozen=True)
class Sample:
    """Some rows of the data of a fit or a validation.

    Attributes:
        x: the rows, of the type that they came in: an array, a data frame, a sparse matrix.
        y: [rows] or [rows, outputs], the targets; None without any.
    """

    x: Any
    y: NDArray[Any] | None

    @classmethod
    def of(cls, x: Any, y: Any, rows: int) -> Self:
        """Take at most so many rows, evenly strided."""
        count = x.shape[0] if hasattr(x, "shape") else len(x)
        targets = None if y is None else np.asarray(y)
        if targets is not None and targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        taken = strided_rows(count, rows)
        if taken is None:
            return cls(x, targets)
        return cls(_safe_indexing(x, taken), None if targets is None else targets[taken])


def dense(values: Any) -> NDArray[Any]:
    """Return a table or parameter, sparse or not, as an array."""
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)
