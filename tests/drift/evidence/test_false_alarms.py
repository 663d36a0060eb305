"""The wealth of a stream reaches 1 / p with a probability of p at most, in a whole life."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.drift.noise import Noise, autoregressive, independent, sessions
from vinedresser.drift.evidence.bins import Edges, counted
from vinedresser.drift.evidence.changes import ChangeEvidence
from vinedresser.drift.evidence.streams import Streams

COLUMNS = 20


def lives_with_wealth(noise: Noise, monitors: int, windows: int, wealth: float) -> int:
    """Return the number of streams that ever reach a wealth."""
    random = np.random.default_rng(3)
    streams = monitors * COLUMNS
    baseline = random.normal(size=(200, streams))
    found = Streams(
        Edges.of(baseline, random.random(baseline.shape)), np.ones(streams, np.int64), COLUMNS
    )
    reached = np.zeros(streams, bool)
    for _ in range(windows):
        values = noise(random, (100, monitors, COLUMNS)).reshape(100, streams)
        reached |= found.update(values, random.random(values.shape)) >= np.log(wealth)
    return int(reached.sum())


def may_have(probability: float, lives: int, count: int) -> bool:
    """Return whether a count agrees with a probability of at most this."""
    return bool(stats.binomtest(count, lives, probability, alternative="greater").pvalue > 1e-3)


@pytest.mark.parametrize("wealth", [4, 20])
def test_independent_rows_hold_the_budget(wealth: float) -> None:
    assert may_have(1 / wealth, 200, lives_with_wealth(independent(), 10, 15, wealth))


def test_the_count_would_show_a_broken_budget() -> None:
    """Values of which each is there four times have four times the evidence."""
    random = np.random.default_rng(4)
    edges = Edges.of(random.normal(size=(200, 200)), random.random((200, 200)))
    evidence, reached = ChangeEvidence(edges.gaps), np.zeros(200, bool)
    for _ in range(30):
        bins = np.repeat(
            edges.bins(random.normal(size=(25, 200)), random.random((25, 200))), 4, axis=0
        )
        reached |= evidence.update(counted(bins, np.ones(bins.shape, bool))) >= np.log(20)
    assert not may_have(1 / 20, 200, int(reached.sum()))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("noise", "monitors"),
    [
        pytest.param(independent(), 20, marks=pytest.mark.slow),
        pytest.param(autoregressive(0.5), 20, marks=pytest.mark.slow),
        pytest.param(autoregressive(0.9), 20, marks=pytest.mark.slow),
        pytest.param(sessions(10, 0.5), 20, marks=pytest.mark.slow),
        (sessions(10, 0.5), 8),
    ],
    ids=["independent", "autocorrelated 0.5", "autocorrelated 0.9", "sessions", "few sessions"],
)
def test_a_long_life_holds_the_budget(noise: Noise, monitors: int) -> None:
    lives = monitors * COLUMNS
    assert may_have(1 / 20, lives, lives_with_wealth(noise, monitors, 200, 20))
