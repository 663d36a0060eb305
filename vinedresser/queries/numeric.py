"""How queries compute with arrays, whatever framework they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Numeric"]


class Numeric(Protocol):
    """Computes with arrays of one framework, on the device where they are.

    Arrays are the framework's own and never modified; no operation records gradients or draws
    random numbers. Reductions are computed in float64. A **row-wise** operation takes [rows,
    elements] and reduces the last axis.
    """

    def owns(self, value: Any) -> bool:
        """Return whether a value is an array of this framework."""

    def shape(self, x: Any) -> tuple[int, ...]:
        """Return the shape of an array."""

    def itemsize(self, x: Any) -> int:
        """Return the number of bytes of an element."""

    def unary(self, operation: str, x: Any) -> Any:
        """Return an elementwise function of an array, of the same shape.

        Args:
            operation: "abs", "-", "log", "exp", "sqrt", "sign", "isnan", "isfinite" or "not". The
                last three return booleans.
            x: array of any shape.
        """

    def binary(self, operation: str, left: Any, right: Any) -> Any:
        """Return an elementwise function of two arrays that broadcast.

        Args:
            operation: an operator of Python: arithmetic, a comparison, "and" or "or".
            left: array or number.
            right: array or number; one of both is an array.
        """

    def choose(self, condition: Any, left: Any, right: Any) -> Any:
        """Return elements of `left` where a condition is not 0, and of `right` elsewhere."""

    def argmax(self, x: Any) -> Any:
        """Return the places of the largest elements along the last axis; int64 [...]."""

    def reduce(self, operation: str, x: Any, *, rows: bool = False) -> Any:
        """Return a statistic as float64, of all elements ([]) or of each row ([rows]).

        Args:
            operation: "sum", "min", "max", "norm" (Euclidean), "count" (of elements that are not
                0) or "squares" (sum of the squared deviations from the mean).
            x: array of any shape; [rows, elements] if `rows`.
            rows: compute it for each row.
        """

    def quantile(self, x: Any, shares: Sequence[float], *, rows: bool = False) -> Any:
        """Return quantiles with linear interpolation; float64 [shares], or [rows, shares]."""

    def rows(self, x: Any, axis: int) -> Any:
        """Return an array with one axis first and all others flattened; [rows, elements]."""

    def select(self, x: Any, mask: Any) -> Any:
        """Return the entries of the first axis where a mask is true.

        Args:
            x: [samples, ...].
            mask: bool [samples], an array of this framework.
        """

    def top(self, x: Any, count: int) -> Any:
        """Return the largest elements and their flat indices; float64 [2, count], largest first.

        Elements that are NaN come first.
        """

    def histogram(self, x: Any, edges: Sequence[float]) -> Any:
        """Return the number of elements in each bin; float64 [bins].

        Bins include their lower edge, the last both; elements outside and NaN do not count.

        Args:
            x: array of any shape.
            edges: equally spaced, ascending.
        """

    def pairs(self, rows: Any, columns: Any, classes: int) -> Any:
        """Return how often each pair of classes occurs; float64 [classes, classes].

        Args:
            rows: integers from 0 to classes - 1; any shape.
            columns: likewise, of the same shape.
            classes: number of classes.
        """

    def stack(self, values: Sequence[Any]) -> Any:
        """Return arrays of the same shape as one array; [values, ...]."""

    def fetch(self, values: Sequence[Any]) -> list[NDArray[np.float64]]:
        """Return arrays in host memory as float64, moved in a single transfer."""
