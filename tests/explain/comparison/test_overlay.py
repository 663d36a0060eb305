"""Curves on one axis: outlines lose no peak, averages and bands are those of obvious loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinedresser.explain.comparison.overlay import Curve, Grid, moving_average, usual_limit

LONG = Curve(np.arange(10_000.0), np.sin(np.arange(10_000.0) / 50))


def test_few_places_are_kept_as_they_are() -> None:
    one = Curve(np.array([0.0, 2, 4]), np.array([1.0, np.nan, 3]))
    two = Curve(np.array([1.0, 2]), np.array([5.0, 6]))
    grid = Grid.over([one, two], 0, 4, 50)
    assert grid.places.tolist() == [0, 1, 2, 4]
    outline = grid.outline(one)
    # No value at 1; one that is not finite at 2.
    assert np.isnan(outline[1])
    assert outline[[0, 2, 3]].tolist() == [1, math.inf, 3]
    assert grid.outline(two)[[1, 2]].tolist() == [5, 6]


def test_of_values_at_one_place_the_last_is_drawn() -> None:
    twice = Curve(np.array([3.0, 3.0]), np.array([1.0, 2.0]))
    assert Grid.over([twice], 3, 3, 50).outline(twice).tolist() == [2]


@given(st.integers(0, 9_999), st.floats(2, 1e6))
def test_no_peak_is_lost(place: int, height: float) -> None:
    values = LONG.y.copy()
    values[place] = height
    peaked = Curve(LONG.x, values)
    grid = Grid.over([peaked], 0, 9_999, 200)
    outline = grid.outline(peaked)
    assert len(grid.places) == 400
    assert np.nanmax(outline) == height
    assert abs(grid.places[np.nanargmax(outline)] - place) <= 9_999 / 200
    assert np.nanmin(outline) == values.min()


def test_a_range_has_more_detail_and_lines_lead_out_of_it() -> None:
    assert Grid.over([LONG], 100, 110, 200).places.tolist() == [*np.arange(99.0, 112.0)]
    sparse = Curve(np.array([0.0, 1000]), np.array([0.0, 1]))
    assert Grid.over([sparse], 400, 600, 200).places.tolist() == [0, 1000]


def test_values_that_are_not_finite_break_a_line_of_many() -> None:
    values = LONG.y.copy()
    values[5_000:6_000] = np.nan
    grid = Grid.over([LONG], 0, 9_999, 100)
    outline = grid.outline(Curve(LONG.x, values))
    inside = (grid.places > 5_100) & (grid.places < 5_900)
    assert np.isinf(outline[inside][0::2]).all() or np.isinf(outline[inside][1::2]).all()
    assert np.isfinite(outline[grid.places < 4_900]).all()


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300),
    st.sampled_from([0.0, 0.1, 0.6, 0.9, 0.99]),
)
def test_the_average_is_that_of_a_loop(values: list[float], weight: float) -> None:
    expected, total, weights = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            total, weights = weight * total + value, weight * weights + 1
        expected.append(total / weights if math.isfinite(value) else value)
    found = moving_average(np.array(values), weight)
    assert np.allclose(found, expected, rtol=1e-7, atol=1e-3, equal_nan=True)


def test_means_and_bands_are_over_the_runs_that_reach_a_place() -> None:
    whole = [Curve(np.arange(5.0), np.full(5, level)) for level in (1.0, 2.0, 6.0)]
    short = Curve(np.arange(3.0), np.full(3, 3.0))
    grid = Grid.over([*whole, short], 0, 4, 50)
    found = grid.means([*whole, short], "std")
    assert found.reached.tolist() == [4, 4, 4, 3, 3]
    assert found.mean.tolist() == [3, 3, 3, 3, 3]
    assert found.high[0] - 3 == pytest.approx(np.std([1, 2, 6, 3], ddof=1))
    assert found.low[4] - 3 == pytest.approx(-np.std([1, 2, 6], ddof=1))
    ranges = grid.means([*whole, short], "range")
    assert (ranges.low.tolist(), ranges.high.tolist()) == ([1] * 5, [6] * 5)


def test_means_of_runs_with_other_steps_are_on_lines_between_them() -> None:
    often = Curve(np.arange(11.0), np.arange(11.0))
    seldom = Curve(np.array([0.0, 10]), np.array([0.0, 20]))
    grid = Grid.over([often, seldom], 0, 10, 50)
    assert grid.means([often, seldom], "range").mean.tolist() == [1.5 * x for x in range(11)]


def test_means_of_long_runs_are_those_of_bins() -> None:
    grid = Grid.over([LONG], 0, 9_999, 100)
    found = grid.means([LONG], "std")
    first = LONG.y[LONG.x <= 9_999 / 100].mean()
    assert found.mean[0] == pytest.approx(first)
    assert (found.low == found.mean).all()
    assert len(found.mean) == len(grid.centres) == 100


def test_one_run_that_diverges_does_not_set_the_limit() -> None:
    usual = [np.full(10, 2.0), np.full(10, 3.0)]
    assert usual_limit([*usual, np.full(10, 1e30)]) == 90
    assert usual_limit([np.array([np.nan])]) == math.inf
