"""Entries that are not finite are found wherever they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vinedresser.frameworks.torch_.nonfinite import all_finite, nonfinite_entries


def gradients(dtype: torch.dtype) -> list[Tensor]:
    """Return gradients of several shapes: one transposed, one empty, one a scalar."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(16, 3, 3), (70000,), (), (0, 4), (9, 5)]
    found = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [*found[:-1], found[-1].t()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("place", [0, 1, 2, 4])
@pytest.mark.parametrize("values", [[float("nan")], [float("inf")], [float("-inf")]])
def test_one_entry_is_enough(dtype: torch.dtype, place: int, values: list[float]) -> None:
    given = gradients(dtype)
    assert all_finite(given)
    given[place][(-1,) * given[place].ndim] = values[0]
    assert not all_finite(given)
    assert [nonfinite_entries(one) for one in given] == [int(n == place) for n in range(5)]


def test_infinities_of_both_signs_do_not_cancel() -> None:
    given = gradients(torch.float32)
    given[1][7], given[1][60000] = float("inf"), float("-inf")
    assert not all_finite(given)


def test_sparse_gradients() -> None:
    embedding = torch.nn.Embedding(20, 4, sparse=True)
    (embedding(torch.tensor([3, 3, 5])).sum() * 2).backward()
    assert embedding.weight.grad is not None
    given = [*gradients(torch.float32), embedding.weight.grad]
    assert all_finite(given)
    given[-1]._values()[1, 2] = float("nan")
    assert not all_finite(given)
