"""Quantiles and histograms, compared with numpy's, and their sample."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from torch import Tensor

from tests.property_tests import examples
from vinedresser.capture.torch_.copies.reductions import take_later, take_now
from vinedresser.store.reductions import Histogram, Statistics, compute_statistics, reduce_array
from vinedresser.store.reductions.sampling import SAMPLE, places, sample_rows

PERCENTS = (0, 0.5, 5, 25, 50, 75, 99, 99.9, 100)
QUANTILES = tuple(f"p{percent:g}" for percent in PERCENTS)

FINITE = st.floats(-1e300, 1e300)


def histogram(array: NDArray[np.generic], word: str = "histogram") -> Histogram:
    statistics = compute_statistics(array, frozenset([word]), None)
    assert statistics.settle() == {}
    return Histogram.unpacked(statistics.vectors[word])


@pytest.mark.thorough
@examples(150)
@given(arrays.arrays("f8", st.integers(1, 50), elements=FINITE))
def test_quantiles_match_numpy(array: NDArray[np.float64]) -> None:
    found = reduce_array(array, QUANTILES)
    expected = np.quantile(array, np.array(PERCENTS) / 100)
    scale = float(np.max(np.abs(array)))
    assert list(found.values()) == pytest.approx(list(expected), rel=1e-9, abs=1e-12 * scale)
    of_magnitudes = reduce_array(array, [f"abs_{word}" for word in QUANTILES])
    expected = np.quantile(np.abs(array), np.array(PERCENTS) / 100)
    assert list(of_magnitudes.values()) == pytest.approx(
        list(expected), rel=1e-9, abs=1e-12 * scale
    )


def test_quantiles_of_non_finite_elements() -> None:
    inf, nan = math.inf, math.nan

    def quantile(word: str, *values: float) -> float:
        return reduce_array(np.array(values), [word])[word]

    assert math.isnan(quantile("p50", 1, 2, nan))
    assert math.isnan(quantile("p0", nan))
    assert quantile("p0", 1, inf) == 1
    assert quantile("p50", 1, inf) == inf
    assert quantile("p50", 1, -inf) == -inf
    assert quantile("p50", inf, inf) == inf
    assert math.isnan(quantile("p50", -inf, inf))
    assert quantile("p25", -inf, -inf, 3, 4, 5) == -inf
    assert math.isnan(reduce_array(np.empty((0, 3)), ["p50"])["p50"])


@examples(150)
@given(
    arrays.arrays(st.sampled_from(["f4", "f8", "i8", "u1", "?"]), arrays.array_shapes(max_dims=3))
)
def test_histograms_match_numpy(array: NDArray[np.generic]) -> None:
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    found = histogram(array)
    assert len(found.edges) == 65
    assert np.all(np.diff(found.edges[np.isfinite(found.edges)]) >= 0)
    assert found.counts.sum() == finite.size
    if finite.size:
        assert (found.edges[0], found.edges[-1]) == (finite.min(), finite.max())
        expected, _ = np.histogram(finite, bins=found.edges)
        assert found.counts.tolist() == expected.tolist()
    else:
        assert np.isnan(found.edges).all()


def test_bin_widths_match_numpy() -> None:
    array = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    counts, edges = np.histogram(array.astype(np.float64), bins=64)
    found = histogram(array)
    assert found.edges == pytest.approx(edges, rel=1e-12)
    assert found.counts.tolist() == counts.tolist()
    counts, edges = np.histogram(np.abs(array.astype(np.float64)), bins=64)
    found = histogram(array, "abs_histogram")
    assert found.counts.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("values", "low", "high", "counts"),
    [
        ([3.0, 3.0], 3, 3, {63: 2}),
        ([0.0], 0, 0, {63: 1}),
        ([0.0, 64.0, math.nan, math.inf, -math.inf], 0, 64, {0: 1, 63: 1}),
        # A lower edge belongs to its bin, the last upper edge too.
        ([0.0, 1.0, 1.5, 63.0, 64.0], 0, 64, {0: 1, 1: 2, 63: 2}),
        # The edges are further apart than float64 can say.
        ([-1.7e308, 0.0, 1.7e308], -1.7e308, 1.7e308, {0: 1, 32: 1, 63: 1}),
        ([math.nan, math.inf], math.nan, math.nan, {}),
        ([], math.nan, math.nan, {}),
    ],
)
def test_histograms_of_few_elements(
    values: list[float], low: float, high: float, counts: dict[int, int]
) -> None:
    found = histogram(np.array(values))
    assert [found.edges[0], found.edges[-1]] == pytest.approx([low, high], rel=0, nan_ok=True)
    assert {bin_: count for bin_, count in enumerate(found.counts.tolist()) if count} == counts


@pytest.mark.parametrize("high", [np.nextafter(1, 2), 1 + 1e-15])
def test_edges_coincide_without_numbers_in_between(high: float) -> None:
    with pytest.raises(ValueError, match="Too many bins"):
        np.histogram([1.0, high], bins=64)
    found = histogram(np.array([1.0, high]))
    assert (found.edges[0], found.edges[-1]) == (1.0, high)
    (lower,) = np.flatnonzero(found.counts[:-1])
    assert found.edges[lower] == 1.0
    assert found.counts[-1] == 1


@pytest.mark.parametrize("size", [SAMPLE + 1, 2 * SAMPLE, 100_003, 10_000_000, 3 * 10**9])
def test_one_element_per_stride_is_sampled(size: int) -> None:
    found = places(size, SAMPLE)
    bounds = np.arange(SAMPLE + 1) * size / SAMPLE
    assert len(found) == SAMPLE
    assert np.all((found >= np.floor(bounds[:-1])) & (found < bounds[1:]))
    expected = [math.floor((i + (i * (5**0.5 - 1) / 2) % 1) * size / SAMPLE) for i in range(99)]
    assert found[:99].tolist() == expected
    assert found[-1] < size


def test_small_tensors_are_sampled_completely() -> None:
    rows = np.arange(SAMPLE).reshape(1, -1)
    taken = sample_rows(rows)
    assert taken.tolist() == rows.tolist()
    assert not np.shares_memory(taken, rows)


def test_no_feature_is_missed() -> None:
    # 192 elements of 768 features lie between two sampled ones: taken at equal distances, they
    # would all be of four features.
    features = np.zeros((32, 512, 768), np.float32)
    features[..., 5] = 100.0
    flat = features.reshape(-1)
    assert not flat[:: flat.size // SAMPLE].any()
    assert reduce_array(features, ["p99.9", "p99"]) == {"p99.9": 100.0, "p99": 0.0}
    counts = histogram(features).counts
    assert counts[-1] / counts.sum() == pytest.approx(1 / 768, rel=0.02)


def test_the_sample_of_a_large_tensor_estimates_its_quantiles() -> None:
    array = np.random.default_rng(0).normal(size=3_000_000)
    found = reduce_array(array, ["p5", "p50", "p99"])
    for word, percent in (("p5", 5), ("p50", 50), ("p99", 99)):
        # Three standard errors of a random sample of this size.
        assert abs(np.mean(array < found[word]) - percent / 100) < 3 * math.sqrt(0.25 / SAMPLE)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


LARGE = {
    "float32": normal(500, 300),
    "float64": normal(500, 300).double(),
    "strided": normal(300, 500).t(),
    "bfloat16": normal(500, 300).bfloat16(),
    "float8": normal(500, 300).to(torch.float8_e5m2),
    "int64": torch.arange(200_000).flip(0),
    "uint16": torch.arange(200_000).to(torch.uint16),
    "bool": normal(500, 300) > 1,
    "complex": torch.complex(normal(500, 300), normal(500, 300)),
    "complex128": torch.complex(normal(500, 300), normal(500, 300)).to(torch.complex128),
    "conjugate": torch.complex(normal(500, 300), normal(500, 300)).conj(),
    "with_nan": torch.full((100_000,), math.nan),
    "small": normal(7),
    "number": torch.tensor(2.0),
    "empty": torch.empty(3, 0),
}
WORDS = frozenset({"p1", "p50", "abs_p99", "histogram", "abs_histogram"})


def later(tensor: Tensor, words: frozenset[str], axis: int | None) -> Statistics:
    return take_later(tensor, words, axis)[0]


@pytest.mark.parametrize("name", sorted(LARGE))
@pytest.mark.parametrize("take", [take_now, later])
def test_torch_samples_the_same_elements(
    name: str, take: Callable[[Tensor, frozenset[str], int | None], Statistics]
) -> None:
    tensor = LARGE[name]
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    array = (tensor.double() if narrow else tensor.resolve_conj()).numpy()
    expected = compute_statistics(array, WORDS, None)
    found = take(tensor, WORDS, None)
    expected.settle()
    found.settle()
    assert found.scalars == pytest.approx(expected.scalars, rel=1e-12, nan_ok=True)
    for word, vector in expected.vectors.items():
        assert found.vectors[word].tolist() == pytest.approx(vector.tolist(), nan_ok=True)


@pytest.mark.parametrize("take", [take_now, later])
def test_samples_do_not_change_with_the_tensor(
    take: Callable[[Tensor, frozenset[str], int | None], Statistics],
) -> None:
    for tensor in (normal(10), normal(300, 300)):
        expected = take(tensor, WORDS, None)
        found = take(tensor, WORDS, None)
        expected.settle()
        tensor.fill_(7.0)
        found.settle()
        assert found.scalars == expected.scalars


@pytest.mark.thorough
def test_pending_statistics_do_not_keep_the_tensor_alive() -> None:
    tensor = normal(30, 40)
    gone = weakref.ref(tensor)
    statistics, later = take_later(tensor, frozenset({"l2", "channel_l2"}), 0)
    del tensor
    gc.collect()
    assert gone() is None
    assert later is not None
    later.take(later.values.numpy(force=True))
    assert statistics.vectors["channel_l2"].shape == (30,)
