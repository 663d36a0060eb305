"""How queries compute with arrays, whatever framework they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Numeric(Protocol):
    """Computes with arrays of one framework, on the device where they are.

    Arrays are the framework's own and never modified; no operation records gradients or draws
    random numbers. Reductions are computed in float64.
    """

    @property
    def channels_last(self) -> bool:
        """Whether channels are the last axis."""

    def owns(self, value: Any) -> bool:
        """Return whether a value is an array of this framework."""

    def shape(self, x: Any) -> tuple[int, ...]:
        """Return the shape of an array."""

    def is_float(self, x: Any) -> bool:
        """Return whether the elements are real numbers rather than integers or booleans."""

    def widening(self, x: Any) -> tuple[int, bool]:
        """Return the bytes per element that arithmetic uses, and whether it converts the array.

        Arithmetic uses float32 for float16 and bfloat16, and float64 for integers and booleans.
        """

    def unary(self, operation: str, x: Any) -> Any:
        """Return an elementwise function of an array, of the same shape.

        Args:
            operation: "abs", "-", "log", "exp", "sqrt", "sign", "isnan", "isfinite" or "not". The
                last three return booleans.
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

    def argmax(self, x: Any, axis: int) -> Any:
        """Return the places of the largest elements along an axis; integers without this axis."""

    def sizes(self, tensors: Sequence[Any]) -> list[int] | None:
        """Return the numbers of elements of tensors; None if one is converted for arithmetic."""

    def statistic(self, name: str, rows: Any) -> Any:
        """Return a statistic of each row; float64 [rows].

        Args:
            name: "sum", "min", "max", "mean", "l2" (Euclidean norm), "variance", "zero_share" or
                "nonfinite", as defined in `vinedresser.store.reductions`.
            rows: [rows, elements].
        """

    def statistic_of_each(self, name: str, tensors: Sequence[Any]) -> Any:
        """Return a statistic of each tensor as a whole; float64 [tensors].

        Args:
            name: see `statistic`.
            tensors: at least one, of any shapes, none of which needs to be converted (`widening`).
        """

    def sample(self, rows: Any) -> Any:
        """Return at most 65,536 elements of the rows, the same for each; [rows, sampled].

        The places are those of `vinedresser.store.reductions.sampling`.
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

    def join(self, rows: Sequence[Any]) -> Any:
        """Return rows one after the other; [1, elements].

        Args:
            rows: each [1, elements].
        """

    def top(self, x: Any, count: int) -> Any:
        """Return the largest elements and their flat indices; float64 [2, count], largest first.

        NaN counts as larger than every number.
        """

    def fetch(self, values: Sequence[Any]) -> list[NDArray[np.float64]]:
        """Return arrays in host memory as float64 of the same shapes, moved in one transfer."""
