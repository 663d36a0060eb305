"""Feature importance of a booster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

from vinedresser.capture.xgboost_.newest_rounds import NewestRounds

__all__ = ["IMPORTANCES", "Importance", "feature_names"]

IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
# The others are means: a total divided by the number of splits.
_SUMS = ("weight", "total_gain", "total_cover")
_MEANS = {"gain": "total_gain", "cover": "total_cover"}


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
