"""What holds weights is told apart: decay, a rate, a clipped or a missing gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from vinedresser.rules.base import Rule
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.rules.optimisation.over_regularisation import OverRegularisation
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.store.finding import Finding

Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


def net() -> nn.Module:
    return stack((64, 32, 10), nn.ReLU)


def adamw(rate: float, decay: float) -> Optimizer:
    return lambda model: torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)


def sgd(rate: float, decay: float = 0.0) -> Optimizer:
    return lambda model: torch.optim.SGD(
        model.parameters(), lr=rate, momentum=0.9, weight_decay=decay
    )


def alarms(
    path: Path,
    rules: Sequence[Rule],
    model: Callable[[], nn.Module],
    optimizer: Optimizer,
    clip: float | None = None,
) -> list[Finding]:
    """Train on digits, with clipped gradients if ``clip`` is given; return what is not info."""

    def before_step(trained: nn.Module, _: int) -> None:
        if clip is not None:
            nn.utils.clip_grad_norm_(trained.parameters(), clip)

    run = captured(path, rules, model, optimizer, before_step=before_step)
    return [one for one in found(run, *rules) if one.severity != "info"]


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [adamw(2e-3, 150.0), sgd(0.1, 3.0)])
def test_steps_that_are_long_by_weight_decay_are_no_learning_rate(
    optimizer: Optimizer, tmp_path: Path
) -> None:
    rules = [LearningRateTooHigh(), OverRegularisation()]
    first, *others = alarms(tmp_path / "run", rules, net, optimizer)
    assert (first.severity, first.fault) == ("warning", "over_regularisation")
    assert first.step <= 60
    assert "learning_rate_too_high" not in {other.fault for other in others}


def test_a_high_rate_with_a_usual_decay_is_a_learning_rate(tmp_path: Path) -> None:
    # The decay removes as much of the weights in a step as above; the gradient does far worse.
    rules = [LearningRateTooHigh(), OverRegularisation()]
    found = alarms(tmp_path / "run", rules, net, adamw(30.0, 0.01))
    assert found[0].fault == "learning_rate_too_high"


class Raised(nn.Module):
    """Sigmoids of thresholds that no value reaches."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)
        self.threshold = threshold

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores [N, 10] of rows [N, 64]."""
        scores: torch.Tensor = self.last(torch.sigmoid(self.first(x) - self.threshold))
        return scores


@pytest.mark.thorough
@pytest.mark.parametrize(
    "optimizer", [sgd(0.1), lambda model: torch.optim.Adamax(model.parameters(), lr=2e-3)]
)
def test_a_gradient_that_reaches_biases_only_is_missing(
    optimizer: Optimizer, tmp_path: Path
) -> None:
    found = alarms(tmp_path / "run", [LearningRateTooLow()], lambda: Raised(30.0), optimizer)
    assert [one.fault for one in found] == ["vanishing_gradient"] * len(found) != []
    assert found[0].tensor == "gradients/last.bias"
    assert found[0].step <= 40
    assert found[0].correction == {}


@pytest.mark.thorough
def test_units_within_reach_train(tmp_path: Path) -> None:
    rules = [LearningRateTooLow()]
    adam: Optimizer = lambda model: torch.optim.Adam(model.parameters(), lr=1e-2)  # noqa: E731
    assert alarms(tmp_path / "run", rules, lambda: Raised(1.0), adam) == []


@pytest.mark.thorough
@pytest.mark.parametrize("clip", [1e-9, 1e-6])
def test_gradients_clipped_to_nothing_leave_the_weights(clip: float, tmp_path: Path) -> None:
    # With the smaller norm, all weights keep their bits, and only some biases move.
    rules = [LearningRateTooLow(), UntrainedParameters()]
    found = alarms(tmp_path / "run", rules, net, sgd(0.02), clip)
    assert {one.fault for one in found} == {"learning_rate_too_low"}
    assert found[0].step <= 40


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("decay", "fault"), [(1e-3, "learning_rate_too_low"), (1.0, "over_regularisation")]
)
def test_a_usual_decay_shrinks_weights_where_the_gradient_is_clipped_to_nothing(
    decay: float, fault: str, tmp_path: Path
) -> None:
    # Adam divides gradient and decay by their size.
    adam: Optimizer = lambda model: torch.optim.Adam(  # noqa: E731
        model.parameters(), lr=5e-3, weight_decay=decay
    )
    found = alarms(tmp_path / "run", [OverRegularisation()], net, adam, 1e-6)
    assert {one.fault for one in found} == {fault}
    assert ("clipped to a norm of 1e-6" in found[0].cause) == (fault == "learning_rate_too_low")


@pytest.mark.thorough
def test_weights_with_a_rate_of_zero_beside_trained_biases_are_not_lost_to_rounding(
    tmp_path: Path,
) -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        biases = [parameter for parameter in model.parameters() if parameter.ndim == 1]
        weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        groups: list[dict[str, Any]] = [{"params": biases}, {"params": weights, "lr": 0.0}]
        return torch.optim.SGD(groups, lr=0.1)

    rules = [LearningRateTooLow(), UntrainedParameters()]
    run = captured(tmp_path / "run", rules, net, optimizer)
    findings = found(run, *rules)
    assert {(one.fault, one.severity) for one in findings} == {("untrained_parameters", "info")}
