"""A model that was explained is as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.explain.saliency.models import Computed, classifier
from vinedresser.explain.saliency import saliency


class Counting(nn.Module):
    """Counts its calls in a buffer, and draws random numbers."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return functional.dropout(x, 0.5)


def state(model: nn.Module) -> list[Any]:
    """Return everything that an explanation may have changed."""
    return [
        [(name, one.clone()) for name, one in model.state_dict().items()],
        [(parameter.requires_grad, parameter.grad) for parameter in model.parameters()],
        [module.training for module in model.modules()],
        [
            (
                len(module._forward_hooks),
                len(module._forward_pre_hooks),
                len(module._backward_hooks),
            )
            for module in model.modules()
        ],
        torch.get_rng_state(),
    ]


def mixed() -> nn.Module:
    """Return a model in training, with a frozen part and gradients."""
    model = nn.Sequential(
        nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), Counting(), classifier(4)
    )
    model[2].eval()
    model[1].requires_grad_(False)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    return model


def same(one: Any, other: Any) -> bool:
    """Return whether nested lists of tensors and other values are equal."""
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_nothing_is_left() -> None:
    model, x = mixed(), torch.randn(2, 3, 8, 8)
    before, given = state(model), x.clone()
    assert saliency(model, x).complete
    assert same(state(model), before)
    assert torch.equal(x, given)
    assert x.grad is None
    assert not x.requires_grad


def test_nothing_is_left_after_an_error() -> None:
    model, x = nn.Sequential(mixed(), nn.Linear(7, 1)), torch.randn(2, 3, 8, 8)
    before = state(model)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        saliency(model, x)
    assert same(state(model), before)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_need_not_be_enabled(context: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 2))
    with context():
        assert saliency(model, torch.randn(2, 4)).complete


def test_an_input_that_requires_a_gradient_gets_none() -> None:
    x = torch.randn(2, 4, requires_grad=True)
    assert saliency(Computed(lambda x: x.sin()), x).complete
    assert x.grad is None


@pytest.mark.thorough
def test_a_compiled_model_is_explained_as_the_original(fresh_compiler: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 2))
    x = torch.randn(2, 4)
    found = saliency(torch.compile(model, backend="eager"), x)
    expected = saliency(model, x)
    assert list(found.bias_terms) == list(expected.bias_terms)
    assert found.complete
