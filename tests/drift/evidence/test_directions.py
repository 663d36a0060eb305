"""Directions find what single columns cannot show, and hold their budget."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from vinedresser.drift.evidence.directions import Directions, Moments

COLUMNS = 6


def with_halves(halves: NDArray[np.float64], seed: int) -> Directions:
    return Directions(halves[0], halves[1], seed)


def ratios(directions: Directions, rows: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    return directions.update(rows, np.random.default_rng(seed).random((len(rows), 2)), 1)


def test_a_correlation_is_found_where_it_is() -> None:
    random = np.random.default_rng(0)
    directions = with_halves(random.normal(size=(2, 300, COLUMNS)), 0)
    found = np.empty(0)
    for window in range(12):
        rows = random.normal(size=(200, COLUMNS))
        rows[:, 1] = 0.7 * rows[:, 4] + np.sqrt(0.51) * rows[:, 1]
        found = ratios(directions, rows, window)
    assert found.max() > 20
    axis = abs(directions.axes[:, found.argmax()])
    assert set(np.argsort(axis)[-2:]) == {1, 4}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seeds", [range(15), pytest.param(range(15, 60), marks=pytest.mark.slow)], ids=len
)
def test_evidence_by_chance_before_a_drift_does_not_hide_it(seeds: range) -> None:
    """A direction whose evidence stops growing is replaced."""
    for seed in seeds:
        random = np.random.default_rng([seed, 4])
        directions = with_halves(random.normal(size=(2, 300, COLUMNS)), seed)
        best = 0.0
        for window in range(24):
            rows = random.normal(size=(200, COLUMNS))
            if window >= 12:
                rows[:, 1] = 0.7 * rows[:, 4] + np.sqrt(0.51) * rows[:, 1]
            best = max(best, *ratios(directions, rows, window), 0.0)
        assert best > 20


def test_ratios_hold_the_budget() -> None:
    random = np.random.default_rng(1)
    reached = lives = 0
    for seed in range(40):
        directions = with_halves(random.standard_t(3, size=(2, 100, COLUMNS)), seed)
        best = np.zeros(2)
        for window in range(8):
            found = ratios(directions, random.standard_t(3, size=(150, COLUMNS)), window)
            if len(found):
                best = np.maximum(best, np.exp(found))
        reached, lives = reached + int((best >= 10).sum()), lives + 2
    # Several directions are tested in each life, so this is a cautious bound.
    assert stats.binomtest(reached, lives, 0.3, alternative="greater").pvalue > 1e-3


def test_wide_rows_with_missing_infinite_and_constant_columns_are_tested() -> None:
    random = np.random.default_rng(2)
    halves = random.normal(size=(2, 60, 100))
    halves[:, :, 0], halves[:, ::2, 1] = 5.0, np.nan
    directions = with_halves(halves, 0)
    rows = random.normal(size=(700, 100))
    rows[0, 3], rows[1, 4] = np.inf, -np.inf
    assert len(ratios(directions, rows, 0)) == 0
    assert np.isfinite(ratios(directions, rows, 1)).all()
    assert directions.axes.shape == (100, 2)


def test_moments_are_those_of_numpy() -> None:
    rows = np.random.default_rng(3).normal(2, 3, size=(50, 4))
    moments, rest = Moments(4), Moments(4)
    moments.add(rows[:20])
    rest.add(rows[20:])
    moments.absorb(rest)
    assert moments.mean == pytest.approx(rows.mean(0))
    ridge = np.diag(moments.covariance - np.cov(rows.T, bias=True))
    assert moments.covariance == pytest.approx(np.cov(rows.T, bias=True) + np.diag(ridge))
    assert ridge == pytest.approx(0.05)
