"""Distances between mean saliency maps, and how often chance reaches them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.explain.alerts.map_shift import map_shift, mean_map


def maps(random: np.random.Generator, count: int, column: int) -> NDArray[np.float32]:
    """Return maps [count, 8, 8] whose saliency is mostly in one column."""
    found = random.gamma(0.5, size=(count, 8, 8))
    found[:, :, column] += 3 * random.gamma(2.0, size=(count, 8))
    return found.astype(np.float32)


def test_the_distance_is_the_share_that_moves() -> None:
    here, there = np.zeros((2, 4, 4)), np.zeros((2, 4, 4))
    here[:, 0, 0] = 5.0
    there[:, 0, 0], there[:, 3, 3] = 3.0, 1.0
    assert map_shift(here, there).distance == pytest.approx(0.25)
    assert map_shift(here, 7 * here).distance == 0.0


def test_another_place_is_found_and_the_same_one_is_not() -> None:
    random = np.random.default_rng(0)
    moved = map_shift(maps(random, 24, 1), maps(random, 24, 6))
    assert moved.p_value == pytest.approx(0.001)
    assert moved.distance > 2 * moved.usual
    assert "is elsewhere; chance alone stays below" in moved.text
    same = map_shift(maps(random, 24, 3), maps(random, 24, 3))
    assert same.p_value > 0.05
    assert "is usual" in same.text


def test_p_values_of_equal_sets_are_uniform() -> None:
    random = np.random.default_rng(1)
    found = np.array(
        [
            map_shift(maps(random, 6, 2), maps(random, 9, 2), rounds=99, seed=seed).p_value
            for seed in range(200)
        ]
    )
    # 4 standard deviations of a binomial share.
    for level in (0.05, 0.2, 0.5):
        assert abs((found <= level).mean() - level) < 4 * np.sqrt(level * (1 - level) / 200) + 0.01


def test_signs_do_not_cancel_and_an_empty_map_is_even() -> None:
    signed = np.array([[[1.0, -1.0]], [[0.0, 0.0]]])
    assert mean_map(signed).tolist() == [[0.5, 0.5]]
