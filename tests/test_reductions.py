"""The statistics, held against figures computed exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vinedresser.capture.reductions import REDUCTIONS, reduce_array
from vinedresser.capture.torch_.reductions import reduce_later, reduce_now


def exact(values: list[float]) -> dict[str, float]:
    """Return all statistics of finite numbers, in rational arithmetic."""
    x = [Fraction(value) for value in values]
    n = len(x)
    mean = sum(x, Fraction(0)) / n
    return {
        "min": float(min(x)),
        "max": float(max(x)),
        "mean": float(mean),
        "l2": root(sum((value**2 for value in x), Fraction(0))),
        "abs_mean": float(sum(abs(value) for value in x) / n),
        "std": root(sum(((value - mean) ** 2 for value in x), Fraction(0)) / n),
        "zero_share": sum(value == 0 for value in x) / n,
        "nonfinite": 0.0,
    }


def root(square: Fraction) -> float:
    """Return the square root of a rational, also where its square is beyond float64's range."""
    scale: int = 2 ** max((square.numerator.bit_length() - square.denominator.bit_length()) // 2, 0)
    return math.sqrt(square / scale**2) * scale


def later(tensor: Tensor) -> dict[str, float]:
    return dict(
        zip(REDUCTIONS, torch.stack(reduce_later(tensor, REDUCTIONS)).tolist(), strict=True)
    )


def reference(tensor: Tensor) -> dict[str, float]:
    wide = tensor.resolve_conj()
    if tensor.is_floating_point():
        wide = tensor.double()
    return reduce_array(wide.numpy(), REDUCTIONS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=30))
def test_the_reference_is_right(values: list[float]) -> None:
    found = reduce_array(np.array(values), REDUCTIONS)
    expected = exact(values)
    scale = expected["abs_mean"]
    for name, value in expected.items():
        # Float64 sums err in the 16th digit of the greatest summand.
        tolerance = 1e-13 * scale if name in ("mean", "std") else 1e-300
        assert found[name] == pytest.approx(value, rel=1e-12, abs=tolerance), name


def test_the_reference_counts_what_is_not_finite() -> None:
    found = reduce_array(np.array([1.0, np.nan, np.inf, -np.inf, 0.0]), REDUCTIONS)
    assert (found["nonfinite"], found["zero_share"]) == (3.0, 0.2)
    assert all(math.isnan(found[name]) for name in ("min", "max", "mean", "l2", "std", "abs_mean"))
    found = reduce_array(np.array([1.0, np.inf]), REDUCTIONS)
    assert (found["min"], found["max"], found["l2"], found["mean"]) == (1.0, *3 * (math.inf,))
    with pytest.raises(KeyError, match="median"):
        reduce_array(np.zeros(1), ["median"])


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
    "sparse_spike": torch.cat([torch.zeros(9999), torch.tensor([1e-20])]),
    "float64": normal(1000).double() * 1e100,
    "bfloat16": normal(5000).bfloat16(),
    "float16": (normal(5000) * 60000).clamp(-65000, 65000).half(),
    "float8": normal(5000).to(torch.float8_e4m3fn),
    "int64": torch.arange(-50, 77),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "bool": normal(50) > 0,
    "complex": torch.complex(normal(40), normal(40)),
    "conjugate": torch.complex(normal(40), normal(40)).conj(),
    "empty": torch.empty(0, 3),
    "empty_int": torch.empty(0, dtype=torch.int64),
    "nan": torch.tensor([1.0, math.nan, 0.0]),
    "infinite": torch.tensor([1.0, math.inf, 0.0]),
    "both_infinities": torch.tensor([math.inf, -math.inf, math.nan]),
    "large_with_nan": torch.cat([normal(1_000_000), torch.tensor([math.nan])]),
    "half_with_infinity": torch.tensor([1.0, math.inf]).half(),
}


@pytest.mark.parametrize("name", sorted(TENSORS))
@pytest.mark.parametrize(
    "compute", [lambda t: reduce_now(t, REDUCTIONS), later], ids=["now", "later"]
)
def test_torch_agrees_with_the_reference(name: str, compute: object) -> None:
    assert callable(compute)
    tensor = TENSORS[name]
    found, expected = compute(tensor), reference(tensor)
    assert set(found) == set(REDUCTIONS)
    for key in ("min", "max", "nonfinite"):
        assert found[key] == pytest.approx(expected[key], rel=1e-7, nan_ok=True), key
    for key in ("l2", "abs_mean", "std", "zero_share"):
        tolerance = 1e-9 * expected["abs_mean"] if key == "std" else 0.0
        assert found[key] == pytest.approx(
            expected[key], rel=2e-5, abs=max(tolerance, 1e-300), nan_ok=True
        ), key
    assert found["mean"] == pytest.approx(
        expected["mean"], rel=1e-6, abs=max(1e-7 * expected["abs_mean"], 1e-300), nan_ok=True
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["small", "far_from_zero", "squares_underflow", "nan", "empty"])
def test_each_alone_is_the_same_as_among_all(reduction: str, name: str) -> None:
    tensor = TENSORS[name]
    alone = reduce_now(tensor, [reduction])
    assert alone == pytest.approx(
        {reduction: reduce_now(tensor, REDUCTIONS)[reduction]}, nan_ok=True
    )


def test_autocast_does_not_narrow_them() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        found = reduce_now(TENSORS["large"], REDUCTIONS)
    assert found == reduce_now(TENSORS["large"], REDUCTIONS)
