"""Terms equal those worked out by hand, by other derivatives and by differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.explain.saliency.models import Computed, classifier, drawn
from vinedresser.explain.saliency import Saliency, saliency

Floats = npt.NDArray[np.float64]


def total(result: Saliency) -> Floats:
    """Return the sum of the bias terms of each example."""
    return np.sum([term.sums for term in result.bias_terms.values()], axis=0)  # type: ignore[no-any-return]


def test_two_linear_layers_by_hand() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, -1.0]]))
        first.bias.copy_(torch.tensor([0.5, -9.0]))
        second.weight.copy_(torch.tensor([[4.0, 7.0]]))
        second.bias.copy_(torch.tensor([0.25]))
    model = nn.Sequential(first, nn.ReLU(), second).double()

    # The second unit is off: f = 4 (x + 2 y + 0.5) + 0.25.
    result = saliency(model, torch.tensor([[1.0, 3.0]], dtype=torch.float64))

    assert result.outputs.tolist() == [30.25]
    assert result.input_term.tolist() == [[4.0, 24.0]]
    assert {name: one.sums.tolist() for name, one in result.bias_terms.items()} == {
        "0/addmm": [2.0],
        "2/addmm": [0.25],
    }
    assert result.map is None


@pytest.mark.parametrize(
    ("activation", "derivative"),
    [
        (functional.relu6, lambda x: ((x > 0) & (x < 6)).double()),
        (functional.silu, lambda x: x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
        (torch.tanh, lambda x: 1 - x.tanh() ** 2),
        (torch.sigmoid, lambda x: x.sigmoid() * (1 - x.sigmoid())),
        (
            functional.gelu,
            lambda x: (
                (1 + torch.erf(x / 2**0.5)) / 2 + x * torch.exp(-(x**2) / 2) / (2 * torch.pi) ** 0.5
            ),
        ),
    ],
    ids=["relu6", "silu", "tanh", "sigmoid", "gelu"],
)
def test_an_activation_leaves_what_its_tangent_leaves(
    activation: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    x = 4 * torch.randn(3, 7, dtype=torch.float64)
    weight = torch.randn(7, dtype=torch.float64)
    model = Computed(lambda x: activation(x) @ weight)

    result = saliency(model, x)

    expected = ((activation(x) - x * derivative(x)) * weight).sum(1)
    np.testing.assert_allclose(total(result), expected, rtol=1e-12)


def network() -> nn.Module:
    """Return layers whose only implicit biases are their own."""
    return drawn(
        nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(6, 6, 3, groups=3, bias=False), nn.BatchNorm2d(6, affine=False),
            nn.LeakyReLU(0.2), nn.ConvTranspose2d(6, 4, 3, 2), nn.AvgPool2d(2), classifier(4),
        )
    )  # fmt: skip


class PlainNorm(nn.Module):
    """Batch norm written out, so that its mean has a gradient."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.mean_bias = nn.Parameter(norm.running_mean.clone())
        deviation = (norm.running_var + norm.eps).sqrt()
        self.scale = (norm.weight.detach() if norm.affine else 1) / deviation
        self.bias = nn.Parameter(norm.bias.detach().clone()) if norm.affine else None

    def forward(self, x: Tensor) -> Tensor:
        mean, scale = (one.view(-1, 1, 1) for one in (self.mean_bias, self.scale))
        x = (x - mean) * scale
        return x if self.bias is None else x + self.bias.view(-1, 1, 1)


def test_bias_terms_equal_parameters_times_their_gradients() -> None:
    model, x = network(), torch.randn(1, 3, 12, 12, dtype=torch.float64)
    result = saliency(model, x, 2)

    layers = [
        PlainNorm(child) if isinstance(child, nn.BatchNorm2d) else child
        for child in model.children()
    ]
    written_out = nn.Sequential(*layers)
    biases = {name: one for name, one in written_out.named_parameters() if name.endswith("bias")}
    gradients = torch.autograd.grad(written_out(x)[0, 2], [*biases.values()])
    expected: dict[str, float] = {}
    for (name, one), gradient in zip(biases.items(), gradients, strict=True):
        layer = name.rpartition(".")[0]
        expected[layer] = expected.get(layer, 0) + (one * gradient).sum().item()
    found = {term.layer: term.sums[0] for term in result.bias_terms.values()}
    assert found == pytest.approx(expected, rel=1e-10)


def test_terms_equal_differences_of_outputs() -> None:
    model, x = network().eval(), torch.randn(2, 3, 12, 12, dtype=torch.float64)
    result = saliency(model, x, 1)

    def output(inputs: float, biases: float) -> Floats:
        scaled = copy.deepcopy(model)
        with torch.no_grad():
            for name, one in (*scaled.named_parameters(), *scaled.named_buffers()):
                if name.endswith(("bias", "running_mean")):
                    one.mul_(biases)
            values: Floats = scaled(inputs * x)[:, 1].numpy()
            return values

    step = 1e-6
    by_inputs = (output(1 + step, 1) - output(1 - step, 1)) / (2 * step)
    by_biases = (output(1, 1 + step) - output(1, 1 - step)) / (2 * step)
    np.testing.assert_allclose(result.input_term.sum((1, 2, 3)), by_inputs, rtol=1e-6)
    np.testing.assert_allclose(total(result), by_biases, rtol=1e-6)


def test_attention_leaves_its_result_less_its_derivative() -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    joined = torch.cat([q, k, v], 3)

    def attend(x: Tensor) -> Tensor:
        query, key, value = x.split(4, 3)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    result = saliency(Computed(lambda x: attend(x).flatten(1)), joined, 7)

    step = 1e-6
    high, low = (attend(joined * (1 + one)).flatten(1)[:, 7] for one in (step, -step))
    expected = attend(joined).flatten(1)[:, 7] - (high - low) / (2 * step)
    (term,) = result.bias_terms.values()
    assert term.operator.startswith("_scaled_dot_product")
    np.testing.assert_allclose(term.sums, expected, rtol=1e-6)


def test_each_call_of_a_shared_layer_counts() -> None:
    layer = nn.Linear(3, 3)
    model = drawn(Computed(lambda x, one: one(one(x)), layer))
    result = saliency(model, torch.randn(2, 3, dtype=torch.float64), 0)

    weight, bias = layer.weight.detach(), layer.bias.detach()
    assert list(result.bias_terms) == ["layers.0/addmm", "layers.0/addmm#2"]
    first, second = (term.sums for term in result.bias_terms.values())
    np.testing.assert_allclose(first, [float(weight[0] @ bias)] * 2, rtol=1e-12)
    np.testing.assert_allclose(second, [float(bias[0])] * 2, rtol=1e-12)


def test_constants_in_functions_are_biases() -> None:
    position = torch.randn(3, dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return 2 * (x + position) + 1 - 0.25 * x

    result = saliency(Computed(function), torch.randn(2, 3, dtype=torch.float64), 1)
    assert [term.sums.tolist() for term in result.bias_terms.values()] == [
        pytest.approx([2 * float(position[1])] * 2),
        [1.0, 1.0],
    ]


def test_a_masked_score_has_no_part() -> None:
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def attend(x: Tensor, layer: nn.MultiheadAttention) -> Any:
        return layer(x, x, x, attn_mask=mask)[0][:, 0]

    model = drawn(Computed(attend, attention))
    assert saliency(model, torch.randn(2, 5, 4, dtype=torch.float64)).complete
