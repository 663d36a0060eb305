"""A loss that is computed by hand is known by its value, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vinedresser.preflight.recognizing import recognized

ROWS, CLASSES = 16, 5
Loss = Callable[[Tensor, Tensor], Tensor]


def scores() -> Tensor:
    """Return scores [16, 5] with a gradient."""
    made = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, CLASSES, generator=made).requires_grad_()


def labels() -> Tensor:
    """Return classes [16]."""
    return torch.arange(ROWS) % CLASSES


def one_hot() -> Tensor:
    """Return classes [16, 5] of zeros and ones."""
    return (labels()[:, None] == torch.arange(CLASSES)).float()


def binary(scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the entropy of independent classes."""
    chance = 1 / (1 + torch.exp(-scores))
    return -(wanted * chance.log() + (1 - wanted) * (1 - chance).log()).mean()


@pytest.mark.parametrize(
    ("name", "loss", "wanted"),
    [
        ("mse_loss", lambda out, to: ((out - to) ** 2).sum() / to.numel(), one_hot()),
        ("l1_loss", lambda out, to: (out - to).abs().mean(), one_hot()),
        ("binary_cross_entropy_with_logits", binary, one_hot()),
        ("cross_entropy", lambda out, to: -(out.log_softmax(1) * to).sum() / len(to), one_hot()),
        (
            "cross_entropy",
            lambda out, to: (out.logsumexp(1) - out[torch.arange(len(to)), to]).mean(),
            labels(),
        ),
    ],
)
def test_by_its_value(name: str, loss: Loss, wanted: Tensor) -> None:
    outputs = scores()
    found = recognized(loss(outputs, wanted), [outputs], [torch.ones(7), wanted])
    assert found is not None
    assert (found.name, found.plain, found.is_loss) == (name, True, True)
    assert torch.equal(found.output, outputs)
    assert torch.equal(found.target, labels() if name == "cross_entropy" else wanted)


def test_logarithms_of_probabilities_are_compared_with_labels() -> None:
    chances = scores().softmax(1)
    found = recognized(-(one_hot() * chances.log()).sum(1).mean(), [chances], [one_hot()])
    assert found is not None
    assert (found.name, found.origin) == ("nll_loss", "SoftmaxBackward0")
    torch.testing.assert_close(found.output, chances.detach().log())
    assert torch.equal(found.target, labels())


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, to: ((out - to) ** 2).sum(1).mean(),
        lambda out, to: ((out - to) ** 2).mean() + 1e-3 * out.abs().mean(),
        lambda out, _: out.square().mean(),
        lambda out, to: ((out - to) ** 2).mean() * torch.nan,
    ],
)
def test_other_losses_are_not_known(loss: Loss) -> None:
    outputs = scores()
    assert recognized(loss(outputs, one_hot()), [outputs], [one_hot()]) is None


def test_a_value_of_two_functions_is_not_known() -> None:
    outputs = torch.zeros(ROWS, 1, requires_grad=True)
    wanted = torch.ones(ROWS, 1)
    # Squares and absolute values of ones are the same.
    assert recognized(((outputs - wanted) ** 2).mean(), [outputs], [wanted]) is None
