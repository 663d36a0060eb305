"""Sampled rows of a table with their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from vinedresser.store.reductions.sampling import strided_rows

__all__ = ["Sample", "dense"]


@dataclass(frozen=True)
class Sample:
    """Some rows of the data of a fit or a validation.

    Attributes:
        x: [rows, features], in the given type: an array, a data frame or a sparse matrix.
        y: [rows] or [rows, outputs], the targets; None if there are none.
    """

    x: Any
    y: NDArray[Any] | None

    @classmethod
    def of(cls, x: Any, y: Any, rows: int) -> Self:
        """Sample at most `rows` evenly strided rows."""
        count = x.shape[0] if hasattr(x, "shape") else len(x)
        targets = None if y is None else np.asarray(y)
        if targets is not None and targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        taken = strided_rows(count, rows)
        if taken is None:
            return cls(x, targets)
        return cls(_safe_indexing(x, taken), None if targets is None else targets[taken])


def dense(values: Any) -> NDArray[Any]:
    """Convert a table or parameter, sparse or dense, to an array."""
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)
