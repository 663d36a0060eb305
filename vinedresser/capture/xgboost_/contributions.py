"""Contributions of the features to a booster: importance and Shapley values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix

__all__ = ["IMPORTANCES", "Importance", "NewestRounds", "ShapleyValues", "feature_names"]

# Serializing this many additional rounds is cheaper than another slice.
_FEW = 16
IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
# The others are means: a total divided by the number of splits.
_SUMS = ("weight", "total_gain", "total_cover")
_MEANS = {"gain": "total_gain", "cover": "total_cover"}


class NewestRounds:
    """The current rounds of a booster, with cached slices.

    Args:
        booster: a booster with at least one round; slices require trees.

    Attributes:
        booster: the whole booster.
        count: number of rounds.
    """

    def __init__(self, booster: Booster) -> None:
        self.booster = booster
        self.count = booster.num_boosted_rounds()
        self._slices: dict[int, Booster] = {}

    def since(self, first: int) -> Booster:
        """Return a booster with the rounds from `first` on, counted from 0."""
        if first == 0:
            return self.booster
        if first not in self._slices:
            self._slices[first] = self.booster[first : self.count]
        return self._slices[first]

    def recent(self) -> Booster:
        """Return a cached slice with the newest round and few others, or slice the newest round."""
        shared = [first for first in self._slices if first >= self.count - _FEW]
        return self.since(max(shared, default=self.count - 1))


def feature_names(booster: Booster) -> list[str]:
    """Return the feature names in order; "f0", "f1", ... if there are none."""
    return list(booster.feature_names or ()) or [f"f{n}" for n in range(booster.num_features())]


class Importance:
    """The importance of each feature as in `xgboost.Booster.get_score`.

    Weights and totals are sums over the trees, so each call evaluates only the new rounds if the
    booster can be sliced. A linear booster has only "weight", its coefficients.

    Shape legend: F features, K outputs of a linear booster.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._sums: dict[str, NDArray[np.float64]] = {}

    def of_trees(self, rounds: NewestRounds, *, cut: bool) -> dict[str, NDArray[np.float64]]:
        """Return each of `IMPORTANCES`: float64 [F], 0 for unused features.

        Args:
            rounds: rounds of the same booster as in the previous call, at least as many.
            cut: whether the booster can be sliced.
        """
        if not cut:
            self._rounds, self._sums = 0, {}
        if rounds.count > self._rounds:
            newest = rounds.since(self._rounds)
            # A slice knows the names that the features have.
            place = {name: number for number, name in enumerate(feature_names(rounds.booster))}
            for kind in _SUMS:
                self._sums[kind] = _vector(newest, kind, place) + self._sums.get(kind, 0.0)
            self._rounds = rounds.count
        found = dict(self._sums)
        for kind, total in _MEANS.items():
            found[kind] = found[total] / np.maximum(found["weight"], 1)
        return found

    def of_coefficients(self, booster: Booster) -> dict[str, NDArray[np.float64]]:
        """Return "weight" of a linear booster: float64 [F], or [F, K] for several outputs."""
        place = {name: number for number, name in enumerate(feature_names(booster))}
        return {"weight": _vector(booster, "weight", place)}


def _vector(booster: Booster, kind: str, place: dict[str, int]) -> NDArray[np.float64]:
    scores = booster.get_score(importance_type=kind)
    first = next(iter(scores.values()), 0.0)
    outputs = (len(first),) if isinstance(first, list) else ()
    values = np.zeros((len(place), *outputs))
    for name, score in scores.items():
        values[place[name]] = score
    return values


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
