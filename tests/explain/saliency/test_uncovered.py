"""What is not covered, or cannot be, is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.explain.saliency.models import Computed, classifier, drawn
from vinedresser.explain.saliency import SaliencyError, saliency


class Square(torch.autograd.Function):
    """x ** 2 + 1, hidden from PyTorch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x + 1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        result: Tensor = 2 * gradients[0] * x
        return result


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return torch.relu(Square.apply(x))  # type: ignore[no-untyped-call]  # torch has no types


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8, dtype=torch.float64)


def test_a_custom_function_is_named() -> None:
    model = drawn(nn.Sequential(nn.Conv2d(3, 4, 3), Squared(), classifier(4)))
    result = saliency(model, images())
    assert not result.complete
    assert result.uncovered == ("SquareBackward in 1",)
    assert str(result).startswith("incomplete (relative error ")
    assert str(result).endswith("; not covered: SquareBackward in 1")


def test_a_change_that_autograd_does_not_see_is_named() -> None:
    def function(x: Tensor, first: nn.Module, last: nn.Module) -> Any:
        x = first(x)
        with torch.no_grad():
            x.add_(1)
        return last(x)

    result = saliency(drawn(Computed(function, nn.Conv2d(3, 4, 3), classifier(4))), images())
    assert not result.complete
    assert result.uncovered == ("add, in place and hidden from autograd, in the model",)


def test_examples_that_change_each_other_are_named() -> None:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = drawn(nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), classifier(4)))
    result = saliency(model, images())
    assert not result.complete
    assert "change the outputs of others" in str(result)
    assert saliency(model, images()[:1]).complete


LINEAR = nn.Linear(4, 3)
ROWS = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("model", ROWS), {}, "str cannot be explained: it must be a torch.nn.Module"),
        ((LINEAR, [[1.0]]), {}, "inputs are list; they must be a float32 or float64 tensor, or"),
        ((LINEAR, ROWS.half()), {}, "inputs are torch.float16; they must be a float32 or"),
        ((LINEAR, ROWS[0]), {}, r"inputs have the shape \[4\]; they must be \[batch, ...\]"),
        ((LINEAR, ROWS[:0]), {}, r"inputs have the shape \[0, 4\]; they must be"),
        ((LINEAR, ROWS / ROWS[:, :1].sub(1).triu()), {}, "inputs.0. contains NaN or infinity"),
        ((LINEAR, ROWS, 3), {}, "targets must be between 0 and 2, the model's outputs"),
        ((LINEAR, ROWS, [0, 1, 2]), {}, r"targets have the shape \[3\]; .* the 2 examples"),
        ((LINEAR, ROWS, 0.5), {}, "targets are float64; they must be integers"),
        ((nn.Flatten(0), ROWS), {}, r"the model returns torch.float32 \[8\]; it must return"),
        ((Computed(lambda x: {"y": x}), ROWS), {}, "the model returns dict; it must return a"),
        ((Computed(lambda x: x.detach()), ROWS), {}, "does not depend differentiably"),
        ((LINEAR, ROWS), {"method": "grad"}, "method='grad': must be one of fullgrad, simple"),
        ((LINEAR, ROWS), {"postprocess": 1}, "postprocess=1: must be one of rescale, abs, none"),
    ],
)
def test_bad_input_is_named(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(SaliencyError, match=message):
        saliency(*arguments, **options)
