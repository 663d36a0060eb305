"""Statistics per channel, compared with a loop over the channels."""

from __future__ import annotations

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
from tests.store.reductions.reference import FIGURES, RELATIVE, assert_close, expected_figures
from vinedresser.capture.torch_.copies.reductions import take_later, take_now
from vinedresser.store.reductions import (
    Histogram,
    Statistics,
    channel_axis,
    compute_statistics,
    reduce_array,
)
from vinedresser.store.reductions.sampling import SAMPLE

WORDS = frozenset(f"channel_{figure}" for figure in FIGURES)

Take = Callable[[NDArray[np.generic], frozenset[str], int | None], Statistics]


def torch_now(array: NDArray[np.generic], words: frozenset[str], axis: int | None) -> Statistics:
    return take_now(torch.from_numpy(array), words, axis)


def torch_later(array: NDArray[np.generic], words: frozenset[str], axis: int | None) -> Statistics:
    statistics, later = take_later(torch.from_numpy(array), words, axis)
    if later is not None:
        later.take(later.values.numpy(force=True))
    return statistics


TAKES = pytest.mark.parametrize("take", [compute_statistics, torch_now, torch_later])


@pytest.mark.parametrize(
    ("name", "dimensions", "last", "axis"),
    [
        ("weights/conv", 4, False, 0),
        ("gradients/fc", 2, False, 0),
        ("biases/fc", 1, False, 0),
        ("buffers/bn.running_mean", 1, False, 0),
        ("optimizer_state/lr", 0, False, None),
        ("outputs/conv", 4, False, 1),
        ("attention/block", 4, False, 1),
        ("attention/block", 4, True, 1),
        ("predictions/batch", 2, False, 1),
        ("labels/batch", 1, False, None),
        ("saved/number", 0, False, None),
        ("weights/conv", 4, True, 3),
        ("biases/fc", 1, True, 0),
        ("outputs/conv", 4, True, 3),
        ("outputs/number", 1, True, None),
    ],
)
def test_channels_are_the_outputs_of_a_layer(
    name: str, dimensions: int, last: bool, axis: int | None
) -> None:
    assert channel_axis(name, dimensions, last=last) == axis


@TAKES
@pytest.mark.parametrize("axis", [0, 1, 2, 3, None])
@pytest.mark.parametrize("shape", [(5, 3, 7, 2), (600, 4, 300, 1), (2, 1, 1, 70_000)])
def test_statistics_match_a_loop(take: Take, shape: tuple[int, ...], axis: int | None) -> None:
    array = np.random.default_rng(0).normal(2, 3, shape).astype(np.float32)
    found = take(array, WORDS, axis).vectors
    channels = [array] if axis is None else list(np.moveaxis(array, axis, 0))
    assert {vector.shape for vector in found.values()} == {(len(channels),)}
    assert {vector.dtype for vector in found.values()} == {np.dtype(np.float64)}
    for place in range(0, len(channels), 1 + len(channels) // 20):
        figures = {word.removeprefix("channel_"): v[place] for word, v in found.items()}
        assert_close(figures, expected_figures(channels[place]), RELATIVE)


@pytest.mark.thorough
@examples(60)
@given(
    arrays.arrays(
        st.sampled_from(["f4", "i2", "?", "c8"]),
        arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6),
        elements=None,
    ),
    st.integers(0, 2),
)
def test_numpy_and_torch_agree_on_anything(array: NDArray[np.generic], axis: int) -> None:
    axis = min(axis, array.ndim - 1)
    takes = ((compute_statistics, 1e-9), (torch_now, RELATIVE), (torch_later, RELATIVE))
    for take, relative in takes:
        found = take(array, WORDS, axis).vectors
        for place, channel in enumerate(np.moveaxis(array, axis, 0)):
            figures = {word.removeprefix("channel_"): v[place] for word, v in found.items()}
            # Spreads that float32 cannot hold differ between the implementations.
            if np.all(np.abs(channel.astype(np.complex128)) < 1e30):
                assert_close(figures, expected_figures(channel), relative)


@TAKES
def test_quantiles_and_histograms_match_a_loop(take: Take) -> None:
    array = np.random.default_rng(0).normal(size=(30, 5, 40)).astype(np.float32)
    array[:, 3] = 1.5
    array[7, 2, 7] = np.nan
    words = frozenset({"channel_p10", "channel_abs_p90", "channel_histogram"})
    statistics = take(array, words, 1)
    assert statistics.settle() == {}
    found = statistics.vectors
    assert found["channel_histogram"].shape == (5, 66)
    for place in range(5):
        channel = array[:, place]
        expected = reduce_array(channel, ["p10", "abs_p90"])
        assert found["channel_p10"][place] == pytest.approx(expected["p10"], nan_ok=True)
        assert found["channel_abs_p90"][place] == pytest.approx(expected["abs_p90"], nan_ok=True)
        histogram = Histogram.unpacked(found["channel_histogram"][place])
        finite = channel[np.isfinite(channel)].astype(np.float64)
        counts, _ = np.histogram(finite, bins=histogram.edges)
        assert histogram.counts.tolist() == counts.tolist()


@TAKES
@pytest.mark.parametrize(("channels", "sampled"), [(7, SAMPLE // 7), (100_000, 1)])
def test_the_sample_is_divided_among_the_channels(take: Take, channels: int, sampled: int) -> None:
    array = np.zeros((channels, 10_000 if channels == 7 else 3), np.int8)
    statistics = take(array, frozenset({"channel_p50"}), 0)
    ((_, sample),) = statistics.samples
    assert sample.shape == (channels, sampled)
    assert statistics.nbytes == sample.nbytes


def test_no_channels() -> None:
    tensor: Tensor = torch.empty(0, 4)
    words = frozenset({"channel_l2", "channel_p50", "channel_histogram"})
    for take in (compute_statistics, torch_now, torch_later):
        statistics = take(tensor.numpy(), words, 0)
        statistics.settle()
        assert statistics.vectors["channel_l2"].shape == (0,)
        assert statistics.vectors["channel_p50"].shape == (0,)
        assert statistics.vectors["channel_histogram"].shape == (0, 66)
