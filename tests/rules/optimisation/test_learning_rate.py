"""The learning rate is reported as the cause only if it is the cause."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, batches, digits, sgd
from vinedresser.capture.hook.hook import Hook
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.rules.signals.losses.predicted_fall import PredictedFall
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.step import Step
from vinedresser.testing.runs import make_run, step_record


def net() -> nn.Module:
    return stack((64, 32, 10), nn.ReLU)


class Keeps(Rule):
    """A rule without findings, whose signals can be inspected afterwards."""

    needs = ()

    def __init__(self) -> None:
        self.rate = LearningRateSignal()
        self.predicted = PredictedFall()
        self.overshoots: list[float] = []

    def begin(self, info: object) -> None:
        Keeps.judging = self  # type: ignore[attr-defined]

    def update(self, step: Step) -> None:
        if step.step % 20 == 0:
            self.overshoots.append(self.predicted.overshoot)


def kept(run: Run) -> Keeps:
    assert judge(run, [Keeps()]) == []
    rule: Keeps = Keeps.judging  # type: ignore[attr-defined]
    return rule


def quadratic(path: Path, lr: float, curvature: float, steps: int = 320) -> Run:
    """Descend curvature / 2 · w² from w = 1."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with Hook(path, collections=capture_for([Keeps()]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = curvature / 2 * model(torch.ones(1, 1)).square().sum()
            hook.save("losses/quadratic", loss.detach())
            loss.backward()
            optimizer.step()
    return open_run(path)


def test_overshoot_and_agreement_of_a_quadratic(tmp_path: Path) -> None:
    lr, curvature = 1e-3, 2.0
    rule = kept(quadratic(tmp_path / "run", lr, curvature))
    # lr (c w)² over c w² / 2.
    assert rule.overshoots == pytest.approx([2 * lr * curvature] * len(rule.overshoots), rel=1e-4)
    # Half of step times curvature is lost of the predicted decrease.
    whole = rule.predicted.agreements()[0]
    assert whole.share == pytest.approx(1 - lr * curvature / 2, rel=0.1)
    assert whole.fall > 10 * whole.error


def test_the_learning_rate_is_known_without_hyperparameters(tmp_path: Path) -> None:
    rule = kept(quadratic(tmp_path / "run", 1e-3, 1.0, steps=40))
    assert rule.rate.captured == {"optimizer_state/lr": 1e-3}
    assert rule.rate.scaled(0.1) == "lr 0.0001 instead of 0.001"
    # The name in the script is unknown.
    assert rule.rate.corrected(0.1) == {}


def test_a_high_learning_rate_is_the_root_cause(tmp_path: Path) -> None:
    rules = [LearningRateTooHigh(), LossNotDecreasing()]
    run = captured(tmp_path / "run", rules, net, sgd(100.0), steps=400, total=400)
    (root,) = root_causes(found(run, *rules))
    assert root.finding.rule == "learning_rate_too_high"
    assert root.finding.severity == "stop"
    assert "the learning rate is too high" in root.finding.cause
    assert root.finding.remedy.startswith("lr 0.1 instead of 100")
    assert root.finding.correction == {"lr": 0.1}
    assert {symptom.rule for symptom in root.symptoms} == {"loss_not_decreasing"}
    # The rule has warned at once.
    assert [repeat.rule for repeat in root.repeats] == ["learning_rate_too_high"]


def test_the_cause_says_how_far_a_step_went(tmp_path: Path) -> None:
    lr, curvature = 0.5, 4.1
    rule = LearningRateTooHigh()
    (finding,) = found(quadratic(tmp_path / "run", lr, curvature, 400), rule)
    # Along the tangent c w the loss c w² / 2 is zero after w / 2, and the step is lr c w.
    assert f"overshot the minimum {2 * lr * curvature:.2g}×" in finding.cause


def test_a_diverged_loss_is_sufficient(tmp_path: Path) -> None:
    losses = [1.0 + step % 2 / 10 for step in range(50)] + [40.0 + step % 3 for step in range(300)]
    made = [step_record(step, scalars={"losses/a": loss}) for step, loss in enumerate(losses)]
    run = make_run(tmp_path / "run", made, parameters={"learning_rate": 0.5})
    (finding,) = found(run, LearningRateTooHigh())
    assert finding.seen.startswith("a rose from 1 to 41")
    assert finding.cause == "the learning rate is too high: the loss rose from 1 to 41.1"
    assert finding.correction == {"learning_rate": 0.05}


@pytest.mark.parametrize(
    ("used", "remedy"),
    [
        (None, "a tenth of the learning rate"),
        (0.5, "lr 0.05 instead of 0.5"),
        (0.0, "a learning rate other than 0"),
    ],
)
def test_a_hyperparameter_of_0_is_not_the_rate_to_change(
    used: float | None, remedy: str, tmp_path: Path
) -> None:
    rate = {} if used is None else {"optimizer_state/lr": used}
    losses = [1.0 + step % 2 / 10 for step in range(50)] + [40.0 + step % 3 for step in range(300)]
    made = [
        step_record(step, scalars={"losses/a": loss, **rate}) for step, loss in enumerate(losses)
    ]
    (finding,) = found(
        make_run(tmp_path / "run", made, parameters={"lr": 0}), LearningRateTooHigh()
    )
    assert finding.remedy.startswith(f"{remedy};")
    assert finding.correction == {}


def test_a_long_step_is_the_cause_of_a_loss_that_rose_and_fell_half_back(tmp_path: Path) -> None:
    losses = [2.0] * 3 + [900.0] * 40 + [50.0 + step % 2 for step in range(300)]
    made = [step_record(step, scalars={"losses/a": loss}) for step, loss in enumerate(losses)]
    norms = {"weights/w": {"l2": 4.0}, "updates/w": {"l2": 2.0}}
    made[0] = step_record(0, scalars={"losses/a": 2.0}, reductions=norms)
    (finding,) = found(make_run(tmp_path / "run", made), LearningRateTooHigh())
    assert finding.cause.startswith(
        "the learning rate is too high: the update of step 0 was 0.5× the size of the weights"
    )
    # Not where it has come back to, 40 steps later.
    assert finding.since <= 10


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [sgd(1e-3), adam(1e-6)])
def test_a_low_learning_rate_is_found(
    tmp_path: Path, optimizer: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    rule = LearningRateTooLow()
    *early, finding = found(captured(tmp_path / "run", [rule], net, optimizer), rule)
    assert [one.severity for one in early] in ([], ["warning"])
    assert finding.severity == "stop"
    assert "too low" in finding.cause
    old = optimizer(net()).param_groups[0]["lr"]
    # Within a factor of ten of what trains such a network.
    assert finding.correction["lr"] >= 10 * old


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [sgd(0.5), adam(2e-2), adam(1e-3)])
def test_good_learning_rates_are_ignored(
    tmp_path: Path, optimizer: Callable[[nn.Module], torch.optim.Optimizer]
) -> None:
    rules = [LearningRateTooHigh(), LearningRateTooLow()]
    assert found(captured(tmp_path / "run", rules, net, optimizer), *rules) == []


@pytest.mark.thorough
def test_a_good_learning_rate_with_random_labels_is_ignored(tmp_path: Path) -> None:
    rules = [LearningRateTooHigh(), LearningRateTooLow()]
    data = digits()
    mixed = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(1))
    data.y = data.y[mixed]
    run = captured(tmp_path / "run", rules, net, sgd(0.05), data=data)
    assert found(run, *rules) == []


def adversaries(path: Path, losses: tuple[float, float]) -> list[str]:
    """Return the rules that fire on two models whose losses go from 0.7 to these values."""
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.0) for one in models]
    rules = [LossNotDecreasing(), LearningRateTooHigh()]
    with Hook(path, collections=capture_for(rules).collections, total_steps=500) as hook:
        for name, model, optimizer in zip("ab", models, optimizers, strict=True):
            hook.watch(model, optimizer=optimizer, name=name)
        for step in range(500):
            for name, model, optimizer, loss in zip("ab", models, optimizers, losses, strict=True):
                model(torch.ones(1, 2)).sum().backward()
                hook.save(f"losses/{name}", loss if step > 40 else 0.7)
                optimizer.step()
    return [one.rule for one in judge(open_run(path), rules) if one.statistic]


@pytest.mark.thorough
def test_flat_adversarial_losses_are_ignored(tmp_path: Path) -> None:
    assert adversaries(tmp_path / "run", (0.69, 1.1)) == []


def test_diverging_adversarial_losses_are_found(tmp_path: Path) -> None:
    assert set(adversaries(tmp_path / "run", (20.0, 9.0))) == {
        "loss_not_decreasing",
        "learning_rate_too_high",
    }


@pytest.mark.parametrize(("moves", "earliest", "latest"), [(True, 400, 450), (False, 160, 260)])
def test_a_possible_plateau_gets_half_of_the_run(
    moves: bool, earliest: int, latest: int, tmp_path: Path
) -> None:
    made = []
    for step in range(800):
        norms: dict[str, Any] = {"gradients/w": {"l2": 1.0}}
        norms["weights/w"] = {"l2": 1.0 + step / 1000 * moves}
        looked = norms if step % 20 == 0 else {}
        losses = {"losses/a": 0.7 + 0.01 * (step % 3)}
        made.append(step_record(step, scalars=losses, reductions=looked))
    run = make_run(tmp_path / "run", made, total_steps=800)
    (finding,) = found(run, LossNotDecreasing())
    assert earliest <= finding.step <= latest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    ("rate", "expected"),
    [(2.0, "learning_rate_too_high"), (1e-7, "learning_rate_too_low"), (3e-3, None)],
)
def test_learning_rates_in_keras(rate: float, expected: str | None, tmp_path: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    rules = [LearningRateTooHigh(), LearningRateTooLow()]
    layers = [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss)
    data = digits()
    collections = capture_for(rules).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=207) as hook:
        hook.watch(model)
        model.fit(data.x.numpy(), data.y.numpy(), batch_size=64, epochs=9, verbose=0)
    findings = found(open_run(tmp_path / "run"), *rules)
    # A warning may precede the stop.
    assert [finding.rule for finding in findings[-1:]] == ([] if expected is None else [expected])
    assert len({finding.rule for finding in findings}) <= 1
    for finding in findings:
        # The hyperparameters do not contain it: the optimizer's value is used.
        assert f"instead of {rate:g}".replace("e-07", "e-7") in finding.remedy


def test_capture_does_not_change_the_training(tmp_path: Path) -> None:
    def trained(hook: Hook | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, data, loss = net(), digits(), nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        if hook is not None:
            hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), 32)
        for _ in range(50):
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
            schedule.step()
        return [parameter.detach() for parameter in model.parameters()]

    collections = capture_for([LearningRateTooHigh(), LearningRateTooLow()]).collections
    with Hook(tmp_path / "run", collections=collections) as hook:
        watched = trained(hook)
    assert all(map(torch.equal, watched, trained(None)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LearningRateTooHigh(ratio=0), "ratio = 0"),
        (lambda: LearningRateTooHigh(overshoot=-1), "overshoot = -1"),
        (lambda: LearningRateTooLow(ratio=0), "ratio = 0"),
        (lambda: LearningRateTooLow(share=1), "share = 1"),
    ],
)
def test_invalid_parameters_raise(make: Callable[[], Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def triangles(step: int) -> float:
    """Return the factor of a rate that rises for 60 steps, and falls for 60."""
    return 0.1 + 0.9 * (1 - abs(step % 120 - 60) / 60)


def rising(step: int) -> float:
    """Return the factor of a rate that rises for 200 steps, with a short fall on its way."""
    return 1e-7 if 60 <= step < 80 else min(1.0, 10.0 ** (step / 33 - 6))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("epsilon", "factor", "fires"),
    [(1e4, triangles, True), (1e-8, triangles, False), (1e-8, rising, False)],
)
def test_weights_that_stay_still_under_the_greatest_rate_of_a_schedule_are_warned_of(
    epsilon: float, factor: Callable[[int], float], tmp_path: Path, *, fires: bool
) -> None:
    """A large epsilon of Adam makes its steps as small as a rate that is too low."""
    optimizers = []

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        optimizers.append(torch.optim.Adam(model.parameters(), lr=2e-3, eps=epsilon))
        return optimizers[0]

    def schedule(_: nn.Module, step: int) -> None:
        optimizers[0].param_groups[0]["lr"] = 2e-3 * factor(step)

    rule = LearningRateTooLow()
    run = captured(tmp_path / "run", [rule], net, optimizer, steps=200, before_step=schedule)
    findings = found(run, rule)
    assert bool(findings) is fires
    if fires:
        assert findings[0].severity == "warning"
        assert 60 < findings[0].step <= 100


@pytest.mark.parametrize(
    ("ratio", "falls", "fires"),
    [(0.05, False, True), (0.05, True, False), (0.01, False, False)],
    ids=["long steps", "long steps that learn", "usual steps"],
)
def test_steps_that_are_long_throughout_are_found_where_nothing_is_learned(
    ratio: float, falls: bool, fires: bool, tmp_path: Path
) -> None:
    made = []
    for step in range(600):
        looked = step % (20 if step < 400 else 100) == 0
        # A warm-up: no single step is long.
        share = ratio * min(1.0, step / 100)
        sizes = {"weights/a.weight": {"l2": 10.0}, "updates/a.weight": {"l2": 10 * share}}
        loss = 2.3 + 0.01 * math.sin(step)
        scalars = {"losses/a": loss / (1 + step / 50) if falls else loss}
        made.append(step_record(step, scalars=scalars, reductions=sizes if looked else {}))
    run = make_run(tmp_path / "run", made, parameters={"lr": 0.3}, total_steps=600)
    findings = found(run, LearningRateTooHigh())
    assert [finding.fault for finding in findings] == ["learning_rate_too_high"] * fires
    assert all(finding.correction["lr"] < 0.03 for finding in findings)
    assert all(finding.value == pytest.approx(ratio) for finding in findings)
