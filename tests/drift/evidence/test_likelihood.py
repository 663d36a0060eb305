"""Likelihood ratios have the mean 1 without drift, exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import BINS, Edges
from vinedresser.drift.evidence.changes import ChangeEvidence, share_of
from vinedresser.drift.evidence.likelihood import Urn, log_ratio


@pytest.fixture
def gaps() -> NDArray[np.float64]:
    """Return the gaps of a baseline of 50 rows, in which some bins are empty."""
    random = np.random.default_rng(0)
    return Edges.of(random.normal(size=(50, 1)), random.random((50, 1))).gaps


def paths(gaps: NDArray[np.float64], rows: int) -> list[tuple[float, list[int]]]:
    """Return all sequences of bins, and their probabilities in the Pólya urn."""
    found = []
    for path in itertools.product(range(BINS), repeat=rows):
        urn, probability = gaps[0, 0].copy(), 1.0
        for one in path:
            probability *= urn[one] / urn.sum()
            urn[one] += 1
        if probability > 0:
            found.append((probability, list(path)))
    return found


def counts(path: list[int]) -> NDArray[np.float64]:
    return np.bincount(path, minlength=BINS).astype(float)[None, None]


def ratio(gaps: NDArray[np.float64], more: NDArray[np.float64]) -> float:
    """Return the log of the likelihood ratio of a change before all values."""
    urn = Urn(gaps)
    before = urn.seen
    urn.add(more)
    return float(log_ratio(before, urn.seen)[0])


def test_the_mean_ratio_is_one(gaps: NDArray[np.float64]) -> None:
    total = sum(
        probability * math.exp(ratio(gaps, counts(path))) for probability, path in paths(gaps, 2)
    )
    assert sum(probability for probability, _ in paths(gaps, 2)) == pytest.approx(1)
    assert total == pytest.approx(1, abs=1e-6)


def test_the_mean_wealth_is_one_after_each_window(gaps: NDArray[np.float64]) -> None:
    means = np.zeros(2)
    for probability, path in paths(gaps, 2):
        evidence = ChangeEvidence(gaps)
        means += [probability * math.exp(evidence.update(counts([one]))[0]) for one in path]
    assert means == pytest.approx(1, abs=1e-6)


def test_merging_bets_keeps_the_wealth(gaps: NDArray[np.float64]) -> None:
    """The wealth of many windows is that of a mixture over the windows that are left."""
    random = np.random.default_rng(1)
    evidence = ChangeEvidence(gaps)
    shares = gaps[0, 0] / gaps.sum()
    wealth = [
        evidence.update(counts(list(random.choice(BINS, 20, p=shares))))[0] for _ in range(40)
    ]
    # Without values, nothing is won or lost, whichever bets are merged.
    later = [evidence.update(np.zeros((1, 1, BINS)))[0] for _ in range(40)]
    assert later == pytest.approx(wealth[-1:] * 40)
    assert len(evidence.state()["starts"]) == 12


def test_shares_of_the_budget_sum_to_less_than_one() -> None:
    assert 0.75 < sum(share_of(index) for index in range(100_000)) < 1


def test_large_counts_agree_with_small_ones_in_the_limit() -> None:
    """Beyond the table of the log-gamma function, results continue smoothly."""
    shares = np.linspace(1, 2, BINS).round(2) * 100
    found = [
        ratio(shares[None, None] * scale, (shares[None, None] * scale * 0.5).round())
        for scale in (30, 38, 42, 50)
    ]
    assert np.diff(found) == pytest.approx(0, abs=1.0)
    assert np.isfinite(found).all()
