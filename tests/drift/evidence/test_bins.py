"""Bins follow the urn whatever the distribution of the values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tests.property_tests import examples
from vinedresser.drift.evidence.bins import BINS, Edges, counted

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]

DISTRIBUTIONS: dict[str, Draw] = {
    "Cauchy": lambda random, shape: random.standard_cauchy(shape),
    "counts": lambda random, shape: random.poisson(1, shape).astype(float),
    "binary": lambda random, shape: (random.random(shape) < 0.1).astype(float),
    "constant": lambda random, shape: np.full(shape, 3.0),
    "missing": lambda random, shape: np.where(random.random(shape) < 0.3, np.nan, 1.0),
    "infinite": lambda random, shape: np.where(random.random(shape) < 0.3, np.inf, -np.inf),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("rows", [40, 201])
def test_the_next_value_is_in_a_bin_in_proportion_to_its_gaps(name: str, rows: int) -> None:
    random = np.random.default_rng(rows)
    streams, draw = 20_000 // rows * 10, DISTRIBUTIONS[name]
    edges = Edges.of(draw(random, (rows, streams)), random.random((rows, streams)))
    bins = edges.bins(draw(random, (1, streams)), random.random((1, streams)))
    found = np.bincount(bins[0], minlength=BINS)
    expected = edges.gaps[0, 0] / (rows + 1) * streams
    assert (found[expected == 0] == 0).all()
    used = expected > 0
    assert stats.chisquare(found[used], expected[used]).pvalue > 1e-4


@examples(30)
@given(st.lists(st.floats(allow_nan=False, width=32), min_size=15, max_size=20), st.data())
def test_larger_values_are_in_higher_bins(baseline: list[float], data: st.DataObject) -> None:
    values = sorted(
        data.draw(st.lists(st.floats(allow_nan=False, width=32), min_size=2, max_size=9))
    )
    known = np.array(baseline)[:, None]
    edges = Edges.of(known, np.random.default_rng(0).random(known.shape))
    bins = edges.bins(np.array(values)[:, None], np.full((len(values), 1), 0.5))
    assert (np.diff(bins[:, 0].astype(int)) >= 0).all()


def test_only_used_values_are_counted() -> None:
    bins = np.array([[0, 15], [0, 3], [2, 3]], np.uint8)
    used = np.array([[True, True], [True, False], [False, True]])
    found = counted(bins, used)
    assert found.shape == (2, 1, BINS)
    assert found.sum() == 4
    assert [found[0, 0, 0], found[1, 0, 15], found[1, 0, 3]] == [2, 1, 1]
