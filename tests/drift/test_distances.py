"""Distances agree with scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.property_tests import examples
from vinedresser.drift.distances import (
    SortedSample,
    kolmogorov_smirnov,
    population_stability,
    wasserstein,
)

samples = st.lists(st.integers(-20, 20).map(lambda one: one / 4), min_size=2, max_size=20)


@examples(40)
@given(samples, samples)
def test_distances_are_those_of_scipy(first: list[float], second: list[float]) -> None:
    one, other = SortedSample(np.array(first)), SortedSample(np.array(second))
    expected = stats.ks_2samp(first, second, method="asymp").statistic
    assert kolmogorov_smirnov(one, other) == pytest.approx(expected, abs=1e-12)
    expected = stats.wasserstein_distance(first, second)
    assert wasserstein(one, other) == pytest.approx(expected, abs=1e-12)


@examples(40)
@given(samples, st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    found = SortedSample(np.array(values)).quantile(share)
    assert found == pytest.approx(np.quantile(values, share), abs=1e-12)


def test_the_stability_index_of_a_known_case() -> None:
    first, second = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    assert population_stability(first, second) == pytest.approx(0.25 * np.log(3))
