"""Whether evaluated rows have another size than all rows of the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.symptom import Symptom

# Minimum numbers of training rows, of different evaluated sizes, of evaluated batches, and of
# features: the numbers of an extrapolation are few.
_ROWS, _EVALUATED, _BATCHES, _FEATURES = 128, 48, 2, 4
# Maximum number of sizes of each kind.
_MOST = 4096
# Minimum ratio of the median sizes.
_RATIO = 4.0


class RowSizes:
    """The sizes, root mean squares over all features, of training rows and of evaluated rows."""

    def __init__(self) -> None:
        # By full name of an input and number of features.
        self._trained: dict[tuple[str, int], list[float]] = {}
        self._evaluated: dict[tuple[str, int], list[float]] = {}
        self._batches: dict[tuple[str, int], int] = {}

    def train(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a training batch.

        Args:
            inputs: inputs of the model by name, [rows, ...].
        """
        for key, sizes in _sizes(inputs).items():
            _add(self._trained.setdefault(key, []), sizes)

    def evaluate(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a batch of an evaluation; see `train`."""
        for key, sizes in _sizes(inputs).items():
            self._batches[key] = self._batches.get(key, 0) + 1
            _add(self._evaluated.setdefault(key, []), sizes)

    def symptom(self) -> Symptom | None:
        """Return the symptom of an input of which no evaluated row is as large as a training row.

        The medians differ by a factor of 4 or more. Rows whose sizes vary in the training, as with
        noise of many strengths, overlap with others. None if there is none.
        """
        for key, evaluated in self._evaluated.items():
            trained = self._trained.get(key, [])
            different = len(set(evaluated))
            if len(trained) < _ROWS or different < _EVALUATED or self._batches[key] < _BATCHES:
                continue
            apart = max(trained) < min(evaluated) or max(evaluated) < min(trained)
            one, other = float(np.median(trained)), float(np.median(evaluated))
            if apart and max(one, other) > _RATIO * min(one, other):
                return Symptom(
                    key[0],
                    "size",
                    other,
                    one,
                    0.9,
                    f"training rows have a root mean square of about {one:.3g}, evaluated rows of "
                    f"about {other:.3g}, and none of {different} evaluated rows has the size of "
                    "any training row",
                    "the inputs of training and evaluation are prepared in different ways: only "
                    "one of them is normalised, or they have other units or statistics",
                    "use the same preprocessing, with the statistics of the training rows, for "
                    "both",
                )
        return None


def _add(known: list[float], sizes: list[float]) -> None:
    if len(known) < _MOST:
        known += sizes


def _sizes(inputs: Mapping[str, NDArray[Any]]) -> dict[tuple[str, int], list[float]]:
    """Return the sizes of the rows of each input of floating-point numbers."""
    found = {}
    for name, values in inputs.items():
        if values.ndim < 2 or values.dtype.kind != "f":
            continue
        flat = np.asarray(values, np.float64).reshape(len(values), -1)
        if flat.shape[1] >= _FEATURES and np.isfinite(flat).all():
            found[name, flat.shape[1]] = np.sqrt((flat**2).mean(1)).tolist()
    return found
