"""Simple models for rows of integers, such as tokens and ids, or of several inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.outcomes.baseline import Baseline, features

__all__ = ["MixedBaseline", "indicators"]

_Array = NDArray[np.float64]

# Maximum numbers of a row.
_MOST_NUMBERS = 1024
# An input with more integers in a row is a sequence, whose positions have no meaning of their own.
_COLUMNS = 8
# Maximum number of values of a column, and of a sequence, that get an indicator of their own.
_MOST_OF_COLUMN, _MOST_OF_SEQUENCE = 64, 256


class _Input(NamedTuple):
    """One input of a row.

    Attributes:
        shape: shape of an array without its rows.
        integers: whether the numbers are tokens or ids.
    """

    name: str
    shape: tuple[int, ...]
    integers: bool


class MixedBaseline(Baseline):
    """The gain of the models of `Baseline` on rows that it does not read.

    These contain integers, several inputs, or both. Each frequent integer is an indicator: of the
    column that has it if a row has up to eight integers, and of the row in any case (a bag of
    words). What depends on the order of tokens is not found, so a gain near zero tells nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: list[_Input] = []

    def gain(self, loss: str) -> float | None:
        """Return the gain of the better model for a loss; None if unknown (yet).

        Also None if a row has several targets, which may be copies of an input, as in autoencoders.
        """
        rows = self.fitted_rows(loss)
        single = rows is not None and rows[1].size == len(rows[1])
        return super().gain(loss) if single else None

    def _read(self, inputs: Mapping[str, NDArray[Any]]) -> _Array | None:
        if len(inputs) == 1 and features(next(iter(inputs.values()))) is not None:
            return None
        values = [inputs[name] for name in sorted(inputs)]
        rows = {len(value) if value.ndim else 0 for value in values}
        if len(rows) != 1 or 0 in rows or any(value.dtype.kind not in "biuf" for value in values):
            return None
        kinds = [
            _Input(name, inputs[name].shape[1:], inputs[name].dtype.kind in "iu")
            for name in sorted(inputs)
        ]
        self._kinds = self._kinds or kinds
        (count,) = rows
        flat = [np.asarray(value, np.float64).reshape(count, -1) for value in values]
        joined = np.concatenate(flat, axis=1)
        usable = joined.shape[1] <= _MOST_NUMBERS and bool(np.isfinite(joined).all())
        return joined if usable and kinds == self._kinds else None

    def _prepared(self, inputs: _Array) -> _Array:
        prepared, start = [], 0
        for kind in self._kinds:
            end = start + int(np.prod(kind.shape))
            numbers = inputs[:, start:end]
            prepared.append(indicators(numbers) if kind.integers else numbers)
            start = end
        return np.concatenate(prepared, axis=1)


def indicators(numbers: _Array) -> _Array:
    """Return features of rows of integers, such as tokens or ids.

    Args:
        numbers: [rows, numbers], integers.

    Returns:
        float64 [rows, features]: for each column of up to eight, whether it has a value, of its 64
        most frequent values; for more than one, how often the row has a value, of the 256 most
        frequent ones.
    """
    columns = list(numbers.T) if numbers.shape[1] <= _COLUMNS else []
    found = [
        np.equal.outer(column, _frequent(column, _MOST_OF_COLUMN)).astype(np.float64)
        for column in columns
    ]
    if numbers.shape[1] > 1:
        words = _frequent(numbers, _MOST_OF_SEQUENCE)
        counts = [(numbers == word).sum(1) for word in words]
        found.append(np.stack(counts, axis=1).astype(np.float64))
    return np.concatenate(found, axis=1)


def _frequent(numbers: _Array, most: int) -> _Array:
    """Return the most frequent values, the most frequent first."""
    values, counts = np.unique(numbers, return_counts=True)
    return np.asarray(values[np.argsort(-counts, kind="stable")[:most]], np.float64)
