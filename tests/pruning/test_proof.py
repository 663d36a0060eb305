"""Differences of outputs, as a proof measures them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vinedresser.pruning.proof import relative_difference

NAN = math.nan
INF = math.inf


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([-INF, 4.0], [-INF, 4.5], 0.125),
        ([NAN, 4.0], [NAN, 4.5], 0.125),
        ([0.0, 0.0], [0.0, 0.0], 0),
        ([0.0, 0.0], [0.0, 1e-9], INF),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, INF], INF),
        ([1.0, 2.0], [1.0, 2.0, 3.0], INF),
        ([True, False], [True, True], 1),
        ([4, 2], [4, 3], 0.25),
        ([], [], 0),
    ],
)
def test_relative_difference(expected: list[float], found: list[float], difference: float) -> None:
    assert relative_difference([np.array(expected)], [np.array(found)]) == difference


def test_the_worst_output_counts() -> None:
    fine, wrong = np.array([1.0, 2.0]), np.array([1.0, NAN])
    assert relative_difference([fine, fine], [fine, wrong]) == INF
    assert relative_difference([fine, fine], [wrong, fine]) == INF
    assert relative_difference([fine], [fine, fine]) == INF
