"""Fast statistics of float32 arrays compared with a float64 reference."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from tests.property_tests import examples
from tests.store.reductions.reference import FIGURES, RELATIVE, assert_close, expected_figures
from vinedresser.store.reductions import compute_statistics

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from vinedresser.capture.keras_.backends.tensorflow_backend import fast_statistics

ALL = frozenset(FIGURES)


def figures(x: NDArray[Any]) -> dict[str, float]:
    return fast_statistics(x, ALL, None).scalars


def normal(size: int) -> NDArray[Any]:
    return np.random.default_rng(size).normal(size=size)


_DATA: dict[str, Callable[[int], NDArray[Any]]] = {
    "normal": normal,
    "rectified": lambda size: np.maximum(normal(size), 0),
    "heavy tails": lambda size: np.exp(3 * normal(size)),
    "sparse": lambda size: np.where(np.abs(normal(size)) > 2, normal(size), 0),
    "far from zero": lambda size: 1000 + normal(size),
    "about one": lambda size: 1 + 1e-4 * normal(size),
    "saturated": lambda size: 1 / (1 + np.exp(-20 * normal(size))),
    "equal": lambda size: np.full(size, 0.1),
    "zero": np.zeros,
    "of opposite signs": lambda size: np.where(np.arange(size) % 2, 0.1, -0.1),
    "tiny": lambda size: 1e-25 * normal(size),
    "denormal": lambda size: 1e-42 * normal(size),
    "huge": lambda size: 1e30 * normal(size),
    "near the greatest": lambda size: np.full(size, 3e38),
    "tiny among ordinary": lambda size: np.where(np.arange(size) % 3, 1e-25, normal(size)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 5000, (1 << 17) + 1025])
@pytest.mark.parametrize("kind", _DATA)
def test_statistics_equal_those_of_float64(kind: str, size: int) -> None:
    x = np.asarray(_DATA[kind](size), np.float32)
    assert_close(figures(x), expected_figures(x), RELATIVE)


@pytest.mark.thorough
@examples(100)
@given(arrays.arrays(np.float32, st.integers(1, 40)))
def test_statistics_of_any_floats_equal_those_of_float64(x: NDArray[np.float32]) -> None:
    assert_close(figures(x), expected_figures(x), RELATIVE)


@pytest.mark.parametrize("place", [0, 1500, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_single_non_finite_element(bad: float, place: int) -> None:
    x = normal((1 << 17) + 1700).astype(np.float32)
    x[place] = bad
    expected = expected_figures(x)
    # Alone too: the extremes of several pieces are joined.
    for words in (ALL, *(frozenset({word}) for word in FIGURES)):
        assert_close(fast_statistics(x, words, None).scalars, expected, RELATIVE)


def test_other_statistics_and_dtypes_use_the_general_implementation() -> None:
    x = normal(30).reshape(6, 5).astype(np.float32)
    words = frozenset(("l2", "mean", "p50", "histogram", "channel_max", "channel_std"))
    for array in (x, x.astype(np.float16), x > 0, (9 * x).astype(np.int32), x[:0], x[0, :1]):
        axis = array.ndim - 1
        mine, plain = fast_statistics(array, words, axis), compute_statistics(array, words, axis)
        assert not mine.settle()
        assert not plain.settle()
        assert mine.scalars == pytest.approx(plain.scalars, rel=RELATIVE, nan_ok=True)
        assert mine.vectors.keys() == plain.vectors.keys()
        for word, vector in plain.vectors.items():
            assert np.array_equal(mine.vectors[word], vector, equal_nan=True)


def test_read_only_memory_is_accepted() -> None:
    x = normal(5000).astype(np.float32)
    x.flags.writeable = False
    assert_close(figures(x), expected_figures(x), RELATIVE)
