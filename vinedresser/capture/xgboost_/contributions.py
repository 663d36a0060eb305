"""Shapley values of a booster, carried from round to round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xgboost import DMatrix

from vinedresser.capture.xgboost_.newest_rounds import NewestRounds

__all__ = ["Contributions"]


class Contributions:
    """Shapley values on a sample (TreeSHAP; Lundberg et al., Nature Machine Intelligence 2, 2020).

    Those of a sum of trees are the sums of those of the trees, so only the rounds since the last
    time are gone through. DART changes the weights of old trees: there all are.

    Shape legend: R rows of the sample, K classes or outputs, F features.

    Args:
        sample: the rows.
        additive: trees stay as they are once they are grown.
    """

    def __init__(self, sample: DMatrix, *, additive: bool) -> None:
        self._sample = sample
        self._additive = additive
        self._rounds = 0
        self._sum: NDArray[np.float64] | None = None

    def values(self, rounds: NewestRounds) -> NDArray[np.float32]:
        """Return them: [R, F + 1], of several outputs [R, K, F + 1].

        The last column is the bias; the sum over a row is its margin.

        Args:
            rounds: of the booster of the call before, which has more of them now or as many.
        """
        booster = rounds.booster
        if not self._additive:
            return np.asarray(
                booster.predict(self._sample, pred_contribs=True, validate_features=False)
            )
        if self._sum is None or rounds.count > self._rounds:
            newest = rounds.since(self._rounds)
            more = np.asarray(
                newest.predict(self._sample, pred_contribs=True, validate_features=False),
                np.float64,
            )
            self._sum = more if self._sum is None else self._sum + more
            self._rounds = rounds.count
        # Each part has brought the base score with it: the bias is what the margin leaves over.
        margin = booster.predict(self._sample, output_margin=True, validate_features=False)
        self._sum[..., -1] = margin - self._sum[..., :-1].sum(axis=-1)
        return self._sum.astype(np.float32)
