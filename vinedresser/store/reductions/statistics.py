"""What was taken of one tensor at one step, and what is still to be computed of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions.distribution import Distribution
from vinedresser.store.reductions.fingerprint import fingerprint
from vinedresser.store.reductions.naming import Reduction
from vinedresser.store.reductions.unit_similarity import unit_similarity

__all__ = ["Statistics"]

# What is one number of all that was taken of a tensor.
_OF_ALL: dict[str, Callable[[NDArray[np.generic]], float]] = {
    "fingerprint": fingerprint,
    "unit_similarity": unit_similarity,
}

_FAILURES = (ArithmeticError, MemoryError, TypeError, ValueError)


@dataclass(eq=False)
class Statistics:
    """The statistics of one tensor at one step.

    Attributes:
        late: there are, or will be, more of them than scalars.
        scalars: those that are one number, by their words.
        vectors: those that are several, float64, by their words.
        samples: words that are still to be computed, and the sample of each channel that they are
            computed of, [C, k]; of a fingerprint all bytes, [n].
        pending: takes all of them; None: that is done.
    """

    late: bool = False
    scalars: dict[str, float] = field(default_factory=dict)
    vectors: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    samples: list[tuple[tuple[Reduction, ...], NDArray[np.generic]]] = field(default_factory=list)
    pending: Callable[[], Statistics] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its vectors and samples."""
        if not (self.vectors or self.samples):
            return 0
        vectors = sum(vector.nbytes for vector in self.vectors.values())
        return vectors + sum(sample.nbytes for _, sample in self.samples)

    def settle(self) -> dict[str, Exception]:
        """Compute what is still to be computed; the samples are let go.

        Returns:
            Why a statistic could not be computed, by its word; all others are there.
        """
        lost: dict[str, Exception] = {}
        pending, self.pending = self.pending, None
        if pending is not None:
            try:
                taken = pending()
            except _FAILURES as error:
                return {"all": error}
            self.scalars, self.vectors, self.samples = taken.scalars, taken.vectors, taken.samples
        samples, self.samples = self.samples, []
        for words, sample in samples:
            distribution = Distribution(sample)
            for word in words:
                whole = _OF_ALL.get(word.statistic)
                try:
                    if whole is not None:
                        self.scalars[word.text] = whole(sample)
                    else:
                        self._take(word, distribution.compute(word))
                except _FAILURES as error:
                    lost[word.text] = error
        return lost

    def _take(self, word: Reduction, computed: NDArray[np.float64]) -> None:
        """Take what was computed of each channel; a tensor as a whole is one channel."""
        if word.channel:
            self.vectors[word.text] = computed
        elif word.vector:
            self.vectors[word.text] = computed[0]
        else:
            self.scalars[word.text] = float(computed[0])
