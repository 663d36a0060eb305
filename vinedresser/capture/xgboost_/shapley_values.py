"""Shapley values of a booster, carried from round to round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xgboost import DMatrix

from vinedresser.capture.xgboost_.newest_rounds import NewestRounds

__all__ = ["ShapleyValues"]


class ShapleyValues:
    """Shapley values on a sample (TreeSHAP; Lundberg et al., Nature Machine Intelligence 2, 2020).

    The values of a sum of trees are the sums of the trees' values, so each call computes only the
    new rounds. DART changes the weights of old trees, which requires all rounds.

    Shape legend: R rows of the sample, K classes or outputs, F features.

    Args:
        sample: the rows.
        additive: whether trees do not change after they were grown.
    """

    def __init__(self, sample: DMatrix, *, additive: bool) -> None:
        self._sample = sample
        self._additive = additive
        self._rounds = 0
        self._sum: NDArray[np.float64] | None = None

    def values(self, rounds: NewestRounds) -> NDArray[np.float32]:
        """Return the values: [R, F + 1], or [R, K, F + 1] for several outputs.

        The last column is the bias; each row sums to its margin.

        Args:
            rounds: rounds of the same booster as in the previous call, at least as many.
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
        # Each part includes the base score, so the bias is computed from the margin.
        margin = booster.predict(self._sample, output_margin=True, validate_features=False)
        self._sum[..., -1] = margin - self._sum[..., :-1].sum(axis=-1)
        return self._sum.astype(np.float32)
