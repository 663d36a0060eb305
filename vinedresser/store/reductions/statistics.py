"""The statistics of one tensor at one step, computed or pending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.reductions.alone import fingerprint, unit_similarity
from vinedresser.store.reductions.distribution import Distribution
from vinedresser.store.reductions.naming import Reduction

# Statistics of the whole sample, not of each channel.
_WHOLE_SAMPLE: dict[str, Callable[[NDArray[np.generic]], float]] = {
    "fingerprint": fingerprint,
    "unit_similarity": unit_similarity,
}

_FAILURES = (ArithmeticError, MemoryError, TypeError, ValueError)


@dataclass(eq=False)
class Statistics:
    """The statistics of one tensor at one step.

    Attributes:
        late: it has, or will have, statistics that are not computed immediately.
        scalars: scalar statistics, by name of the reduction.
        vectors: vector statistics, float64, by name of the reduction.
        samples: pending reductions, and the sample of each channel that they are computed from,
            [C, k]; for a fingerprint, all bytes, uint8 [n].
        pending: computes all statistics; None if done.
    """

    late: bool = False
    scalars: dict[str, float] = field(default_factory=dict)
    vectors: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    samples: list[tuple[tuple[Reduction, ...], NDArray[np.generic]]] = field(default_factory=list)
    pending: Callable[[], Statistics] | None = None

    @property
    def nbytes(self) -> int:
        """Size of its vectors and samples in bytes."""
        if not (self.vectors or self.samples):
            return 0
        vectors = sum(vector.nbytes for vector in self.vectors.values())
        return vectors + sum(sample.nbytes for _, sample in self.samples)

    def settle(self) -> dict[str, Exception]:
        """Compute the pending statistics, and release the samples.

        Returns:
            The errors of statistics that could not be computed, by name of the reduction ("all" if
            none could).
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
                whole = _WHOLE_SAMPLE.get(word.statistic)
                try:
                    if whole is not None:
                        self.scalars[word.text] = whole(sample)
                    else:
                        self._take(word, distribution.compute(word))
                except _FAILURES as error:
                    lost[word.text] = error
        return lost

    def _take(self, word: Reduction, computed: NDArray[np.float64]) -> None:
        """Store a computed statistic; a tensor as a whole has one channel.

        Args:
            computed: float64 [C] or [C, 2 + 64].
        """
        if word.channel:
            self.vectors[word.text] = computed
        elif word.vector:
            self.vectors[word.text] = computed[0]
        else:
            self.scalars[word.text] = float(computed[0])
