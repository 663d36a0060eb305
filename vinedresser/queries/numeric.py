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
    random numbers. Reductions are computed in float64.
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

    def statistic(self, name: str, rows: Any) -> Any:
        """Return a statistic of each row; float64 [rows].

        Args:
            name: "sum", "min", "max", "mean", "l2" (Euclidean norm), "variance", "zero_share" or
                "nonfinite", as defined in `vinedresser.store.reductions`.
            rows: [rows, elements].
        """

    def quantiles(self, rows: Any, shares: Sequence[float]) -> Any:
        """Return quantiles of each row with linear interpolation; float64 [rows, shares].

        Args:
            rows: [rows, elements]; a NaN makes all quantiles of its row NaN.
            shares: from 0 to 1.
        """

    def rows(self, x: Any, axis: int | None) -> Any:
        """Return an array with one axis first and all others flattened; [rows, elements].

        Args:
            x: array of any shape.
            axis: the axis; None: a single row of all elements.
        """

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

    def fetch(self, values: Sequence[Any]) -> list[NDArray[np.float64]]:
        """Return arrays in host memory as float64, moved in a single transfer."""
