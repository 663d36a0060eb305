"""Warnings before the outcome is known, and causes of trainings that learn nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import Data, adam, digits, sgd
from vinedresser.rules.activations.dying_relu import DyingRelu
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.rules.tensors.vanishing_gradient import VanishingGradient
from vinedresser.store.finding import Severity
from vinedresser.testing.runs import make_run, step_record


def net() -> nn.Module:
    return stack((64, 32, 32, 10), nn.ReLU)


def dead() -> nn.Module:
    return stack((64, 32, 32, 10), nn.ReLU, bias=-30.0)


def shifted() -> Data:
    data = digits()
    return Data(data.x * 1e4 + 1e4, data.y, data.x_eval, data.y_eval)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rule", "model", "optimizer", "data"),
    [
        (DyingRelu(), dead, adam(1e-3), digits),
        (UnnormalisedInputs(), net, sgd(1e-3), shifted),
        (LearningRateTooLow(), net, sgd(1e-7), digits),
    ],
    ids=lambda one: one.name if isinstance(one, Rule) else "",
)
def test_a_certain_fault_is_warned_of_before_its_outcome_stops_the_run(
    rule: Rule,
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    data: Callable[[], Data],
    tmp_path: Path,
) -> None:
    run = captured(tmp_path / "run", [rule], model, optimizer, data=data(), steps=500, total=1000)
    warning, stop = found(run, rule)
    assert (warning.severity, stop.severity) == ("warning", "stop")
    assert warning.step <= 100 < stop.step
    assert warning.fault == stop.fault == rule.fault


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rule", "optimizer"),
    [
        (DyingRelu(), adam(1e-3)),
        (UnnormalisedInputs(), adam(1e-3)),
        (LearningRateTooLow(), sgd(0.1)),
    ],
)
def test_a_training_that_learns_has_no_certain_fault(
    rule: Rule, optimizer: Callable[[nn.Module], torch.optim.Optimizer], tmp_path: Path
) -> None:
    assert found(captured(tmp_path / "run", [rule], net, optimizer), rule) == []


def clip(norm: float, model: nn.Module, _: int) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), norm)


@pytest.mark.thorough
def test_a_clipped_gradient_is_named(tmp_path: Path) -> None:
    rule = LossNotDecreasing()
    before = partial(clip, 1e-4)
    run = captured(
        tmp_path / "run", [rule], net, sgd(0.1), steps=500, total=500, before_step=before
    )
    (finding,) = found(run, rule)
    assert finding.fault == "learning_rate_too_low"
    assert "the same norm at every step, 0.0001, to which it is clipped" in finding.cause


@pytest.mark.thorough
def test_frozen_layers_are_named(tmp_path: Path) -> None:
    def frozen() -> nn.Module:
        model = stack((64, 32, 32, 10), nn.ReLU, bias=-30.0)
        for parameter in [*model.parameters()][:-2]:
            parameter.requires_grad = False
        return model

    rule = LossNotDecreasing()
    run = captured(tmp_path / "run", [rule], frozen, sgd(0.1), steps=600, total=600)
    (finding,) = found(run, rule)
    assert finding.fault == "untrained_parameters"
    assert finding.cause.startswith("2 of 3 weights are frozen (requires_grad=False)")


@pytest.mark.parametrize("unfrozen", [True, False])
def test_layers_that_were_frozen_only_at_first_are_no_cause(unfrozen: bool, tmp_path: Path) -> None:
    frozen = ["weights/0.weight", "weights/1.weight"]
    records = [
        step_record(
            step,
            scalars={"losses/a": 2.3},
            reductions={
                **{name: {"l2": 8 + unfrozen * step / 100} for name in frozen},
                "weights/2.weight": {"l2": 9 + step / 100},
                "gradients/2.weight": {"l2": 0.1 + step % 7 / 100, "nonfinite": 0.0},
            },
        )
        for step in range(600)
    ]
    rule = LossNotDecreasing()
    (finding,) = found(make_run(tmp_path / "run", records, frozen=frozen), rule)
    assert (finding.fault == "untrained_parameters") is not unfrozen


@pytest.mark.thorough
def test_labels_at_random_are_no_better_than_guessing(tmp_path: Path) -> None:
    data = digits()
    random = torch.randint(10, (len(data.y),), generator=torch.Generator().manual_seed(1))
    rule = Underfitting()
    # Rows are not learned by heart at this rate.
    run = captured(
        tmp_path / "run",
        [rule],
        net,
        sgd(1e-2),
        data=Data(data.x, random, data.x_eval, data.y_eval),
        steps=500,
        total=500,
    )
    (finding,) = found(run, rule)
    assert finding.step >= 250
    assert "where guessing gives" in finding.seen


@pytest.mark.thorough
@pytest.mark.parametrize("severity", ["stop", "warning"])
def test_a_failure_without_a_cause_comes_with_the_symptoms_that_last(
    severity: Severity, tmp_path: Path
) -> None:
    def deep() -> nn.Module:
        return stack((64, *[32] * 10, 10), nn.Tanh, init=partial(nn.init.normal_, std=0.02))

    rules: list[Rule] = [LossNotDecreasing(), VanishingGradient()]
    for rule in rules:
        rule.severity = severity

    def moving(model: nn.Module) -> torch.optim.Optimizer:
        # It moves the first layers, for which the gradient's rule alone waits.
        return torch.optim.Adam(model.parameters(), 1e-5, eps=1e-15)

    run = captured(tmp_path / "run", rules, deep, moving, steps=450, total=None)
    findings = found(run, *rules)
    stop = next(finding for finding in findings if finding.rule == "loss_not_decreasing")
    # The loss may be on a plateau until the end of a run of unknown length.
    assert stop.step == 449
    assert any(finding.rule == "vanishing_gradient" for finding in findings)
    assert root_causes(findings)[0].finding.fault == "vanishing_gradient"
