"""Statistics of whole tensors, compared with a plain implementation and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from torch import Tensor

from tests.property_tests import examples
from tests.store.reductions.reference import FIGURES, RELATIVE, assert_close, expected_figures
from vinedresser.capture.torch_.copies.reductions import take_later, take_now
from vinedresser.store.reductions import reduce_array

ALL = frozenset(FIGURES)


def now(tensor: Tensor) -> dict[str, float]:
    return take_now(tensor, ALL, None).scalars


def later(tensor: Tensor) -> dict[str, float]:
    statistics, figures = take_later(tensor, ALL, None)
    assert figures is not None
    figures.take(figures.values.numpy(force=True))
    return statistics.scalars


def reference(tensor: Tensor) -> dict[str, float]:
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    return expected_figures((tensor.double() if narrow else tensor.resolve_conj()).numpy())


@examples(60)
@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=30))
def test_statistics_match_rational_arithmetic(values: list[float]) -> None:
    x = [Fraction(value) for value in values]
    n, total = len(x), sum(x, Fraction(0))
    squares = sum((value**2 for value in x), Fraction(0))
    spread = sum(((value - total / n) ** 2 for value in x), Fraction(0))
    magnitude = sum((abs(value) for value in x), Fraction(0))
    expected = {
        "min": float(min(x)),
        "max": float(max(x)),
        "sum": float(total),
        "mean": float(total / n),
        "l1": float(magnitude),
        "l2": root(squares),
        "std": root(spread / n),
        "zero_share": sum(value == 0 for value in x) / n,
        "nonfinite": 0.0,
    }
    found = reduce_array(np.array(values), expected)
    for name, value in expected.items():
        # Float64 sums err in the 16th digit of the greatest summand.
        tolerance = 1e-13 * float(magnitude) if name in ("sum", "mean", "std") else 1e-300
        assert found[name] == pytest.approx(value, rel=1e-12, abs=tolerance), name


def root(square: Fraction) -> float:
    """Return the square root of a rational, also where its square is beyond float64's range."""
    scale: int = 2 ** max((square.numerator.bit_length() - square.denominator.bit_length()) // 2, 0)
    return math.sqrt(square / scale**2) * scale


def test_non_finite_elements_affect_all_statistics_but_counts() -> None:
    found = reduce_array(np.array([1.0, np.nan, np.inf, -np.inf, 0.0]), FIGURES)
    assert (found["nonfinite"], found["zero_share"]) == (3.0, 0.2)
    counts = {"nonfinite", "zero_share", "abs_nonfinite", "abs_zero_share"}
    assert all(math.isnan(found[name]) for name in ALL - counts)
    found = reduce_array(np.array([-1.0, np.inf]), FIGURES)
    assert (found["min"], found["max"], found["l2"]) == (-1.0, math.inf, math.inf)
    assert (found["sum"], found["abs_mean"], found["abs_min"]) == (math.inf, math.inf, 1.0)
    assert math.isnan(found["std"])


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


TENSORS = {
    "small": normal(3, 5),
    "one": torch.tensor(3.5),
    "large": normal(1_000_003),
    "rows": normal(3, 4096),
    "strided": normal(60, 50).t()[::2],
    "far_from_zero": normal(300_000) + 1e6,
    "far_and_huge": normal(5000) * 1e20 + 1e26,
    "squares_overflow": normal(5000) * 1e25,
    "sums_overflow": torch.full((100,), 3e38),
    "squares_underflow": normal(5000) * 1e-25,
    "denormal": normal(5000) * 1e-41,
    "deviation_underflows": 1e-18 * normal(5000) + 1e-18,
    "constant": torch.full((1_000_000,), 0.1),
    "zeros": torch.zeros(10_000),
    "relu": normal(10_000).relu(),
    "both_signs_of_one_size": normal(10_000).sign() * 1e4 + normal(10_000) * 1e-2,
    "sparse_spike": torch.cat([torch.zeros(9999), torch.tensor([1e-20])]),
    "float64": normal(1000).double() * 1e100,
    "float64_far_from_zero": normal(200_000).double() + 1e7,
    "bfloat16": normal(5000).bfloat16(),
    "float16": (normal(5000) * 60000).clamp(-65000, 65000).half(),
    "float8": normal(5000).to(torch.float8_e4m3fn),
    "float8_powers": (2 ** normal(500)).to(torch.float8_e8m0fnu),
    "int64": torch.arange(-50, 77),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "uint16": torch.tensor([0, 3, 65535], dtype=torch.uint16),
    "bool": normal(50) > 0,
    "complex": torch.complex(normal(40), normal(40)),
    "complex_huge": torch.complex(normal(40), normal(40)) * 2e38,
    "conjugate": torch.complex(normal(40), normal(40)).conj(),
    "empty": torch.empty(0, 3),
    "empty_int": torch.empty(0, dtype=torch.int64),
    "nan": torch.tensor([1.0, math.nan, 0.0]),
    "infinite": torch.tensor([1.0, math.inf, 0.0]),
    "minus_infinity": torch.tensor([-math.inf, 2.0]),
    "both_infinities": torch.tensor([math.inf, -math.inf]),
    "infinities_and_nan": torch.tensor([math.inf, -math.inf, math.nan]),
    "large_with_nan": torch.cat([normal(1_000_000), torch.tensor([math.nan])]),
    "half_with_infinity": torch.tensor([1.0, math.inf]).half(),
}


@pytest.mark.parametrize("name", sorted(TENSORS))
@pytest.mark.parametrize("compute", [now, later])
def test_torch_agrees_with_the_plain_implementation(
    name: str, compute: Callable[[Tensor], dict[str, float]]
) -> None:
    found = compute(TENSORS[name])
    assert set(found) == ALL
    assert_close(found, reference(TENSORS[name]), RELATIVE)


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_numpy_agrees_with_the_plain_implementation_to_the_last_digits(name: str) -> None:
    tensor = TENSORS[name]
    narrow = tensor.is_floating_point() and tensor.itemsize < 4
    array = (tensor.double() if narrow else tensor.resolve_conj()).numpy()
    assert_close(reduce_array(array, FIGURES), expected_figures(array), 1e-9)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16])
def test_numpy_takes_narrow_floats(dtype: type[np.generic]) -> None:
    array = np.linspace(-3, 3, 1000).reshape(10, 100).astype(dtype)
    wide = array.astype(np.float64)
    assert_close(reduce_array(array, FIGURES), expected_figures(wide), 1e-12)


MAGNITUDES = st.sampled_from([1e-30, 1e-18, 1e-6, 1.0, 1e6, 1e18, 1e30])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Return a tensor of any type, shape, striding and magnitude, perhaps with NaN and Inf."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    tensor = torch.randn(shape, generator=generator) * draw(MAGNITUDES)
    tensor = (tensor + draw(MAGNITUDES) * draw(st.sampled_from([0, 1, -1]))).to(dtype)
    for value in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), max_size=3)):
        if tensor.numel():
            tensor.view(-1)[draw(st.integers(0, tensor.numel() - 1))] = value
    if tensor.dim() > 1 and draw(st.booleans()):
        tensor = tensor.transpose(0, -1)[::2]
    return tensor


@pytest.mark.thorough
@examples(150)
@given(tensors())
def test_torch_agrees_with_the_plain_implementation_on_anything(tensor: Tensor) -> None:
    expected = reference(tensor)
    assert_close(now(tensor), expected, RELATIVE)
    assert_close(later(tensor), expected, RELATIVE)


@pytest.mark.thorough
@examples(100)
@given(
    arrays.arrays(
        st.sampled_from(["f4", ">f8", "i1", "u2", "i8", "?", "c8", "c16"]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20),
    )
)
def test_numpy_agrees_with_the_plain_implementation_on_anything(
    array: NDArray[np.generic],
) -> None:
    # Whose squares float64 holds.
    size = np.abs(array.astype(np.complex128))
    assume(not np.any(np.isfinite(size) & (size != 0) & ((size < 1e-150) | (size > 1e150))))
    assert_close(reduce_array(array, FIGURES), expected_figures(array), 1e-9)


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("name", ["small", "far_from_zero", "squares_underflow", "nan", "empty"])
def test_each_statistic_is_the_same_alone_and_among_all(figure: str, name: str) -> None:
    tensor = TENSORS[name]
    alone = take_now(tensor, frozenset([figure]), None).scalars
    assert alone == pytest.approx({figure: now(tensor)[figure]}, nan_ok=True)


@pytest.mark.parametrize("size", [1, 8192, 8193, 2**17 - 1, 2**17, 2**17 + 1, 3 * 2**17 + 5000])
def test_pieces_are_combined_correctly(size: int) -> None:
    array = np.random.default_rng(0).normal(3, 2, size)
    array[-1] = -100.0
    assert_close(reduce_array(array, FIGURES), expected_figures(array), 1e-12)


def test_the_variance_survives_a_large_mean() -> None:
    spread = np.random.default_rng(0).normal(0, 1, 300_000)
    # The squares agree in their first 16 digits: their difference alone would say nothing.
    found = reduce_array(1e8 + spread, ["variance", "abs_variance"])
    assert found["variance"] == pytest.approx(np.var(1e8 + spread), rel=1e-6)
    assert found["abs_variance"] == found["variance"]


def test_autocast_does_not_narrow_them() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        found = now(TENSORS["large"])
    assert found == now(TENSORS["large"])


def test_vector_reductions_are_not_scalars() -> None:
    with pytest.raises(ValueError, match="is a vector"):
        reduce_array(np.zeros(3), ["l2", "channel_l2"])
