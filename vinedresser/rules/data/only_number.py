"""Inputs of which all numbers are the same, beside masks or indices that differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from vinedresser.rules.symptom import Symptom


class OnlyNumber:
    """The only value of all features so far.

    Integers and booleans are indices and masks, such as the edges of a graph. So are numbers of the
    same shape as those, such as the mask of a batch of tokens.
    """

    def __init__(self) -> None:
        # None before the first batch, NaN if there are several.
        self._value: float | None = None

    def add(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Add a batch of inputs by name, [rows, ...]."""
        masked = {one.shape for one in inputs.values() if one.dtype.kind != "f"}
        numbers = [
            one
            for one in inputs.values()
            if one.dtype.kind == "f" and one.ndim > 1 and one.size and one.shape not in masked
        ]
        ends = {float(end) for number in numbers for end in (number.min(), number.max())}
        value = ends.pop() if len(ends) == 1 else math.nan
        self._value = value if self._value in (None, value) else math.nan

    def symptom(self, name: str, rows: int) -> Symptom | None:
        """Return the symptom of features that are all the same; None if they are not.

        Args:
            name: full name of the inputs.
            rows: number of rows so far.
        """
        if self._value is None or math.isnan(self._value):
            return None
        return Symptom(
            name,
            "std",
            0.0,
            0.0,
            0.9,
            f"all features of the {rows} rows are {self._value:g}; only masks or indices differ",
            "the features were lost, or a placeholder was never filled",
            "inspect a batch right before the model is called, and the code that creates it",
        )
