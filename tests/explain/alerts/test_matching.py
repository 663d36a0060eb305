"""Samples of the baseline that match the requests of an alert."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vinedresser.explain.alerts.matching import matched_sample, spread_sample


def test_the_sample_has_the_classes_of_the_requests() -> None:
    wanted = ["a"] * 30 + ["b"] * 10
    given = ["b", "a", "c"] * 40
    chosen = matched_sample(wanted, given, 20)
    assert Counter(given[place] for place in chosen) == {"a": 15, "b": 5}
    assert len({*chosen.tolist()}) == 20


def test_a_rare_class_of_the_baseline_is_short_and_an_unknown_one_is_left_out() -> None:
    given = ["a"] * 2 + ["b"] * 50
    chosen = matched_sample(["a"] * 8 + ["b"] * 8 + ["z"] * 8, given, 24)
    assert Counter(given[place] for place in chosen) == {"a": 2, "b": 8}


@pytest.mark.parametrize("count", [1, 7, 31, 32, 100])
def test_never_more_than_asked_for_and_rounding_loses_none(count: int) -> None:
    random = np.random.default_rng(count)
    wanted = random.integers(0, 5, 32)
    chosen = matched_sample(wanted, random.integers(0, 5, 1000), count)
    assert len(chosen) == min(count, 32)


def test_a_spread_sample_covers_both_ends() -> None:
    assert spread_sample(100, 5).tolist() == [0, 25, 50, 74, 99]
    assert spread_sample(3, 10).tolist() == [0, 1, 2]
