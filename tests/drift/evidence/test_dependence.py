"""Distances of independent rows fit the dependence of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.drift.noise import autoregressive, sessions
from vinedresser.drift.evidence.bins import Edges
from vinedresser.drift.evidence.dependence import TOO_FAR
from vinedresser.drift.evidence.streams import Streams

STREAMS = 10


def streams_of(random: np.random.Generator) -> Streams:
    baseline = random.normal(size=(500, STREAMS))
    edges = Edges.of(baseline, random.random(baseline.shape))
    return Streams(edges, np.ones(STREAMS, np.int64), STREAMS)


def distances(values: NDArray[np.float64], rows: int = 200) -> NDArray[np.int64]:
    """Return the distances after values, float64 [rows, streams], in windows."""
    random = np.random.default_rng(1)
    streams = streams_of(random)
    for start in range(0, len(values), rows):
        window = values[start : start + rows]
        streams.update(window, random.random(window.shape))
    return streams.spacing.distances


def test_all_independent_rows_are_used() -> None:
    values = np.random.default_rng(0).standard_t(3, (4000, STREAMS))
    assert np.median(distances(values)) == 1


@pytest.mark.parametrize(("rho", "least"), [(0.5, 5), (0.8, 15), (0.9, 25)])
def test_autocorrelated_rows_are_used_at_a_distance(rho: float, least: int) -> None:
    """The correlation is at most 5 % at these distances."""
    values = autoregressive(rho)(np.random.default_rng(0), (8000, 1, STREAMS))[:, 0]
    found = distances(values)
    assert (found >= least).all()
    assert np.median(found) < 4 * least


def test_few_rows_of_a_session_are_used() -> None:
    values = sessions(10, 0.5)(np.random.default_rng(0), (8000, 1, STREAMS))[:, 0]
    assert (distances(values) >= 20).all()


def test_small_windows_are_seen_together() -> None:
    values = autoregressive(0.8)(np.random.default_rng(0), (4000, 1, STREAMS))[:, 0]
    assert (distances(values, rows=20) >= 10).all()


def test_a_walk_is_not_used_at_all() -> None:
    values = np.cumsum(np.random.default_rng(0).normal(size=(2000, STREAMS)), axis=0)
    assert (distances(values) == TOO_FAR).all()


@pytest.mark.parametrize("onset", [40, 100, 200, 250, 390, 2100])
@pytest.mark.parametrize("size", [0.5, 2, 80])
def test_a_change_is_no_dependence(onset: int, size: float) -> None:
    values = np.random.default_rng(0).normal(size=(onset - onset % 200 + 400, STREAMS))
    values[onset:] += size
    assert (distances(values) == 1).mean() >= 0.8


@pytest.mark.parametrize("rows", [100, 200])
def test_a_slope_is_no_dependence(rows: int) -> None:
    values = np.random.default_rng(0).normal(size=(1000, STREAMS))
    values += 3 * np.clip((np.arange(1000) - 100) / 800, 0, 1)[:, None]
    assert (distances(values, rows) == 1).mean() >= 0.8


def test_dependence_is_seen_in_spite_of_a_change() -> None:
    values = autoregressive(0.8)(np.random.default_rng(0), (200, 1, STREAMS))[:, 0]
    values[100:] += 3
    assert np.median(distances(values)) >= 10
