"""Terms of images that are computed in blocks equal a plain product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.explain.saliency.models import classifier, drawn
from vinedresser.explain.saliency import saliency
from vinedresser.explain.saliency.torch_.axes import axes_of_input
from vinedresser.explain.saliency.torch_.biases import Bias, Planes, dense
from vinedresser.explain.saliency.torch_.terms import Reducer

SHAPE = (3, 5, 200, 180)


def some_planes(numbers: list[int]) -> Planes:
    return Planes(torch.tensor(numbers), torch.rand(len(numbers), 200 * 180) < 0.7, 6.0)


BIASES: dict[str, Callable[[], Bias]] = {
    "by channel": lambda: torch.randn(1, 5, 1, 1),
    "of each element": lambda: torch.randn(SHAPE),
    "a few planes": lambda: some_planes([0, 2, 9]),
    "all planes of an image": lambda: some_planes([1, 5, 6, 7, 8, 9]),
    "saturated everywhere": lambda: Planes(
        torch.arange(15), torch.zeros(15, 200 * 180, dtype=torch.bool), 2.0
    ),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("shape", [SHAPE, (3, 5, 4, 6)])
def test_terms(name: str, signed: bool, shape: tuple[int, ...]) -> None:
    bias = BIASES[name]()
    gradient = torch.randn(SHAPE, dtype=torch.float64) + 0.1
    if shape != SHAPE:
        # Small ones are not cut into blocks.
        if name == "of each element":
            bias = torch.randn(shape)
        elif isinstance(bias, Planes):
            bias = bias._replace(zero=bias.zero[:, :24])
        gradient = gradient[..., :4, :6].contiguous()
    if isinstance(bias, Tensor):
        bias = bias.double()
    product = gradient * dense(bias, gradient)
    shown = product if signed else product.abs()

    reducer = Reducer(gradient, ("row", "column"), signed=signed)
    found = reducer.term(gradient, bias, axes_of_input(gradient))

    torch.testing.assert_close(found.sums, product.sum((1, 2, 3)))
    torch.testing.assert_close(found.picture, shown.sum(1))
    torch.testing.assert_close(found.least, shown.amin((1, 2, 3)))
    torch.testing.assert_close(found.most, shown.amax((1, 2, 3)))
    assert found.layers == 5


@pytest.mark.parametrize("inplace", [False, True])
def test_a_saturating_activation_leaves_its_largest_value(inplace: bool) -> None:
    def model() -> nn.Module:
        torch.manual_seed(1)
        return drawn(
            nn.Sequential(
                nn.Conv2d(3, 8, 3), nn.ReLU6(inplace), nn.Hardtanh(-0.5, 2.0, inplace),
                classifier(8),
            )
        )  # fmt: skip

    x = 20 * torch.randn(2, 3, 8, 8, dtype=torch.float64)
    result = saliency(model(), x, 1)
    assert result.complete, str(result)

    conv, _, _, last = model().children()
    first = conv(x).clamp(0, 6).detach().requires_grad_()
    second = torch.nn.functional.hardtanh(first, -0.5, 2.0)
    inner = second.detach().requires_grad_()
    (above,) = torch.autograd.grad(last(inner)[:, 1].sum(), inner)
    (below,) = torch.autograd.grad(second, first, above)
    expected = {
        "1/hardtanh": (below * 6 * (conv(x) > 6)).sum((1, 2, 3)),
        "2/hardtanh": (above * 2 * (first > 2)).sum((1, 2, 3)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(result.bias_terms[name].sums, value.detach(), atol=1e-12)
