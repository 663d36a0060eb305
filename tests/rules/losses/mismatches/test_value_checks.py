"""Losses written by hand: wrong formulas are recognised by the value of the loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.losses.trainings import Case, judged, regression_case
from tests.rules.trainings import digits
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch


def over_rows(output: Tensor, y: Tensor) -> Tensor:
    return functional.nll_loss(functional.log_softmax(output, dim=0), y)


def of_probabilities(output: Tensor, y: Tensor) -> Tensor:
    return functional.nll_loss(functional.softmax(output, dim=1), y)


def right(output: Tensor, y: Tensor) -> Tensor:
    return functional.nll_loss(functional.log_softmax(output, dim=1), y)


def kinds(case: Case, directory: Path) -> list[tuple[str, str]]:
    """Return the severities and kinds of the mismatches."""
    found = judged(case, directory / "run", LossOutputMismatch())
    return [(one.severity, one.evidence["kind"]) for one in found]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loss", "kind"),
    [(over_rows, "softmax_over_batch"), (of_probabilities, "no_logarithms"), (right, None)],
)
def test_a_loss_of_classes_by_hand(
    loss: Callable[[Tensor, Tensor], Tensor], kind: str | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    data = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    case = Case(data.x, data.y, model, loss, steps=60)
    assert kinds(case, tmp_path) == ([("warning", kind)] if kind else [])


class Logarithms(nn.Module):
    """Ends in a log_softmax, and before it in a softmax on request."""

    def __init__(self, classes: int, *, twice: bool) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return (out.softmax(1) if self.twice else out).log_softmax(1)


@pytest.mark.thorough
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("twice", [True, False])
def test_a_second_softmax_is_seen_in_the_logarithms_of_the_first(
    classes: int, twice: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    data = digits()
    model, y = Logarithms(classes, twice=twice), data.y % classes
    case = Case(data.x, y, model, nn.NLLLoss(), lr=1e-2, steps=150)
    assert kinds(case, tmp_path) == ([("warning", "double_softmax")] if twice else [])


def test_errors_of_both_signs_that_cancel_out(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    case = regression_case(model, loss=lambda output, y: (output - y).mean(), steps=60)
    assert kinds(case, tmp_path) == [("stop", "signed_error")]


def test_a_loss_of_zero_is_not_the_mean_difference(tmp_path: Path) -> None:
    """As that of normalised advantages, while the new probabilities are still the old ones."""
    model = nn.Linear(10, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    x = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return -(output.exp() * y).mean()

    case = Case(x, torch.tensor([[1.0, -1.0]]).repeat(200, 1), model, loss, lr=0.0, steps=60)
    assert "signed_error" not in {kind for _, kind in kinds(case, tmp_path)}


class Nothing(nn.Module):
    """Multiplies by zero, as weights of zero do."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.0 * x


@pytest.mark.thorough
def test_outputs_that_are_all_zero_do_not_end_in_relu(tmp_path: Path) -> None:
    data = digits()
    model = nn.Sequential(nn.Linear(64, 10), Nothing())
    y = functional.one_hot(data.y, 10).float()
    case = Case(data.x, y, model, nn.BCEWithLogitsLoss(), steps=300)
    assert kinds(case, tmp_path) == []
