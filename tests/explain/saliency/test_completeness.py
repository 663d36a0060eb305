"""The terms of an output add up to it, whatever the model is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.explain.saliency.models import Computed, classifier, drawn
from tests.pruning.torch_ import zoo, zoo_attention
from tests.pruning.torch_.networks import random_network
from vinedresser.explain.saliency import saliency

IMAGES = (3, 3, 16, 16)


def check(model: nn.Module, *shape: int) -> None:
    """Check that an explanation is complete in both precisions, for each example."""
    drawn(model)
    x = torch.randn(*shape, dtype=torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        result = saliency(model.to(dtype), x.to(dtype))
        expected = model.eval()(x.to(dtype)).detach().amax(1).numpy()
        np.testing.assert_allclose(result.outputs, expected, rtol=10 * tolerance)
        assert result.complete, str(result)
        assert result.uncovered == ()
        terms = result.input_term.reshape(len(x), -1).sum(1, dtype=np.float64)
        terms = terms + sum(term.sums for term in result.bias_terms.values())
        np.testing.assert_allclose(terms, result.outputs, rtol=10 * tolerance)


def conv(inputs: int = 3, outputs: int = 4) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def swish(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    x = first(x)
    return second(x.mul_(x.sigmoid()))


def in_parts(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    x = first(x)
    x[:, :2] = functional.silu(x[:, :2].clone())
    functional.silu(x[:, 2:], inplace=True)
    x[:, 1] += 1.0
    x[:, 0].mul_(2)
    return second(x)


def into_ones(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    buffer = torch.ones(len(x), 6, *x.shape[2:], dtype=x.dtype)
    buffer[:, 1:5] = first(x)
    return second(buffer * buffer)


def arithmetic(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    x = 1 - (first(x) + 1 - 0.5)
    x = x / 2 + 0.1 * x**2
    x = torch.clamp(2 / (x.abs() + 1), min=0.2, max=1.3)
    x = torch.maximum(torch.exp(-x), x.new_tensor(0.3))
    return second(torch.where(x > 0.4, x, 1.0).add_(1.0))


def gated(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    x = first(x)
    return second(x * x.detach().sigmoid())


def without_modules(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
    x = functional.batch_norm(first(x), torch.ones(4).to(x), torch.ones(4).to(x), eps=0.1)
    return second(functional.hardswish(functional.instance_norm(x)) * functional.softmax(x, dim=1))


SMALL: dict[str, Callable[[], nn.Module]] = {
    "ReLU6, transposed, grouped": lambda: nn.Sequential(
        nn.ConvTranspose2d(3, 4, 3, 2), nn.ReLU6(inplace=True),
        nn.ConvTranspose2d(4, 4, 3, 2, groups=2), nn.ReLU(), classifier(4),
    ),
    "instance norm": lambda: nn.Sequential(
        conv(), nn.InstanceNorm2d(4, affine=True), nn.ReLU(), classifier(4)
    ),
    "group norm, GELU": lambda: nn.Sequential(conv(), nn.GroupNorm(2, 4), nn.GELU(), classifier(4)),
    "inputs in place": lambda: nn.Sequential(nn.ReLU(inplace=True), conv(), classifier(4)),
    "swish": lambda: Computed(swish, conv(), classifier(4)),
    "in parts": lambda: Computed(in_parts, conv(), classifier(4)),
    "into ones": lambda: Computed(into_ones, conv(), classifier(6)),
    "arithmetic": lambda: Computed(arithmetic, conv(), classifier(4)),
    "gated": lambda: Computed(gated, conv(), classifier(4)),
    "without modules": lambda: Computed(without_modules, conv(), classifier(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    check(SMALL[name](), *IMAGES)


# Those that return [batch, outputs].
ZOO = {
    name: make
    for name, make in (zoo.ZOO | zoo_attention.ZOO).items()
    if name not in ("U-Net", "two heads", "super-resolution")
}
QUICK = ("ResNet", "MobileNetV2", "EfficientNet", "ViT, fused", "shared block")


@pytest.mark.parametrize(
    "name",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.thorough) for one in ZOO],
)
def test_architectures(name: str) -> None:
    check(ZOO[name](), *IMAGES)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8), nn.SiLU(), nn.Linear(8, 3)),
    ],
    ids=["layer norm", "RMS norm"],
)
def test_rows_of_a_table(model: nn.Module) -> None:
    check(model, 4, 6)


@pytest.mark.parametrize("batch_first", [True, False])
def test_tokens_in_either_order(batch_first: bool) -> None:
    def encode(x: Tensor, first: nn.Module, encoder: nn.Module, last: nn.Module) -> Any:
        x = first(x)
        x = encoder(x) if batch_first else encoder(x.transpose(0, 1)).transpose(0, 1)
        return last(x.mean(1))

    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
    check(Computed(encode, nn.Linear(6, 8), encoder, nn.Linear(8, 3)), 3, 5, 6)


def test_a_recurrent_network() -> None:
    def last_state(x: Tensor, gru: nn.Module, last: nn.Module) -> Any:
        return last(gru(x)[0][:, -1])

    check(Computed(last_state, nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)), 2, 3, 6)


class Joined(nn.Module):
    """The outputs of a network's heads side by side."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([one.flatten(1) for one in self.network(x)], 1)


def random_model(seed: int) -> nn.Module:
    return Joined(random_network(seed, nasty=seed % 2 == 1)[0])


@pytest.mark.parametrize("seed", range(8))
def test_random_networks(seed: int) -> None:
    check(random_model(seed), 3, 3, 6, 6)


@pytest.mark.slow
def test_many_random_networks() -> None:
    for seed in range(8, 200):
        check(random_model(seed), 3, 3, 6, 6)
