"""Captures that only rules need keep to a share of the training's time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.meter import Meter
from vinedresser.capture.recording.budget import CaptureBudget
from vinedresser.capture.recording.recorder import Recorder
from vinedresser.cli.views.show import show_run
from vinedresser.errors import ConfigError
from vinedresser.explain.reports.report import write_report
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.scheduler_not_stepped import SchedulerNotStepped
from vinedresser.rules.registry import RULES

STATISTICS, LABELS = "gradients", "labels"
NEEDS = CaptureConfig.of(
    {
        STATISTICS: SaveConfig(every=20, reductions=("l2",)),
        LABELS: SaveConfig(every=5, rows=8),
        "losses": SaveConfig(every=1),
    }
).elastic()


class Simulation:
    """A training whose steps and captures take known times, in seconds.

    Args:
        config: the capture configuration.
        share: the budget.
        step: time of a step.
        costs: time of a capture by collection; the writer's thread takes ``writing`` times as long.
        writing: see above.
    """

    def __init__(
        self,
        config: CaptureConfig,
        share: float,
        step: float,
        costs: dict[str, float],
        *,
        writing: float = 0.0,
    ) -> None:
        self.now = self.spent = 0.0
        self.captured: dict[str, list[int]] = {name: [] for name in config.collections}
        self.meter = Meter(lambda: self.spent)
        written = lambda: writing * self.spent  # noqa: E731
        self.budget = CaptureBudget(share, self.meter, written, lambda: self.now)
        self.recorder = Recorder(config, lambda _: None, lambda *_: None, self.budget)
        self.step, self.costs = step, costs

    def run(self, steps: int) -> None:
        """Take some steps."""
        for _ in range(steps):
            number, due = self.recorder.steps, self.recorder.train_due(self.recorder.steps)
            self.now += self.step
            took = 0.0
            if not due.plain:
                self.recorder.recording("train")
            for name in due.collections():
                self.captured[name].append(number)
                took += self.costs.get(name, 0.0)
            if self.meter.on:
                self.meter.spent += took
            self.spent += took
            self.now += took
            self.recorder.end_train_step()


def test_captures_keep_to_the_share() -> None:
    training = Simulation(NEEDS, 0.02, 0.006, {STATISTICS: 0.004, LABELS: 0.001})
    training.run(20_000)
    # Without a budget they would take 6 % of the time.
    assert 0.01 * training.now < training.spent < 0.02 * training.now + 0.3
    assert len(training.captured["losses"]) == 20_000


def test_captured_steps_are_some_of_those_that_rules_expect_and_the_same_for_all_of_them() -> None:
    training = Simulation(NEEDS, 0.02, 0.006, {STATISTICS: 0.004, LABELS: 0.001})
    training.run(20_000)
    statistics, labels = set(training.captured[STATISTICS]), set(training.captured[LABELS])
    assert len(statistics) < 1000
    assert all(step % 20 == 0 for step in statistics)
    assert all(step % 5 == 0 for step in labels)
    assert statistics <= labels


def test_the_first_steps_are_complete_however_expensive() -> None:
    training = Simulation(NEEDS, 0.02, 0.001, {STATISTICS: 1.0, LABELS: 1.0})
    training.run(50)
    assert training.captured[STATISTICS] == [0, 20, 40]
    assert training.captured[LABELS] == list(range(0, 50, 5))


def test_a_short_training_is_captured_completely() -> None:
    training = Simulation(NEEDS, 0.02, 0.006, {STATISTICS: 0.004, LABELS: 0.001})
    training.run(600)
    assert training.captured[LABELS] == list(range(0, 600, 5))
    assert training.budget.thinning is None


@pytest.mark.parametrize("share", [0.02, 1.0])
def test_nothing_is_left_out_within_the_budget_or_without_a_limit(share: float) -> None:
    cost = 0.001 if share < 1 else 1.0
    training = Simulation(NEEDS, share, 0.1, {STATISTICS: cost, LABELS: cost})
    training.run(3000)
    assert training.captured[STATISTICS] == list(range(0, 3000, 20))
    assert training.budget.thinning is None


def test_captures_become_frequent_again_when_steps_take_longer() -> None:
    training = Simulation(NEEDS, 0.02, 0.001, {STATISTICS: 0.004, LABELS: 0.001})
    training.run(5000)
    slow = training.budget.pace
    training.step = 0.5
    training.run(10_000)
    assert slow > 1
    assert training.budget.pace == 1
    assert training.budget.thinning is not None
    assert training.budget.thinning.most >= slow


def test_what_the_user_asks_for_is_always_captured_and_does_not_use_the_budget_up() -> None:
    own = CaptureConfig.of({"weights": SaveConfig(every=1)})
    training = Simulation(
        own.merged(NEEDS), 0.02, 0.1, {"weights": 0.05, STATISTICS: 0.001, LABELS: 0.001}
    )
    training.run(3000)
    assert training.captured["weights"] == list(range(3000))
    assert training.captured[STATISTICS] == list(range(0, 3000, 20))
    training.costs[LABELS] = 0.1
    training.run(3000)
    assert training.captured["weights"] == list(range(6000))
    assert len(training.captured[LABELS]) < 1000


def test_rules_answer_for_their_part_of_the_writers_time() -> None:
    own = CaptureConfig.of({"weights": SaveConfig(every=1)})
    costs = {"weights": 0.05, STATISTICS: 0.004, LABELS: 0.004}
    # Of 0.75 s between two captures for rules they take 5 ms, and as much of the writer's time.
    training = Simulation(own.merged(NEEDS), 0.02, 0.1, costs, writing=1.0)
    training.run(3000)
    assert training.budget.thinning is None
    training = Simulation(own.merged(NEEDS), 0.02, 0.1, costs, writing=4.0)
    training.run(3000)
    assert training.budget.thinning is not None


def test_evaluations_are_never_left_out() -> None:
    config = CaptureConfig.of({LABELS: SaveConfig(every=5, rows=8)}).elastic()
    assert config.due(7, "eval", 64)
    assert not config.due(5, "train", 64)


def test_losses_are_never_elastic() -> None:
    config = capture_for([kind() for kind in RULES.values()]).elastic()
    assert not config.due(1, "train").elastic
    assert config.due(5, "train").elastic
    assert config.due(15, "train", 2).plain


def test_learning_rates_are_never_elastic() -> None:
    config = capture_for([SchedulerNotStepped()]).elastic()
    for step in (20, 60, 380, 500):
        assert config.due(step, "train", 64).ask("optimizer_state/lr").wanted
        assert config.due(step, "train", 64).ask("optimizer_state/scheduler_steps").wanted


def trained(hook: Hook | None, steps: int) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss()
    if hook is not None:
        hook.watch(model, loss, optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(torch.randn(8, 64)), torch.randint(4, (8,))).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
    return [parameter.detach() for parameter in model.parameters()]


def test_a_real_training_says_that_it_was_captured_less_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rare = SaveConfig(every=1, reductions=("l2",), elastic=True)
    collections = {"weights": rare, "gradients": SaveConfig(every=10, reductions=("l2",))}
    hook = Hook(tmp_path / "run", collections=collections, budget=1e-6)
    # Each callback takes ten milliseconds.
    hook._session.shield.meter.clock = itertools.count(step=0.01).__next__
    steps = 150
    weights = trained(hook, steps)
    run = open_run(tmp_path / "run")
    asked, left = (
        [step.step for step in run.follow() if name in step.reductions]
        for name in ("gradients/0.weight", "weights/0.weight")
    )
    assert asked == list(range(0, steps, 10))
    assert left[:50] == list(range(50))
    assert len(left) < 100
    assert len(run.steps("train")) == steps
    assert run.info.thinned["since"] in range(50, steps)
    assert run.info.thinned["most"] > 1
    note = f"from step {run.info.thinned['since']}, captures for the rules were"
    show_run(run)
    assert note in " ".join(capsys.readouterr().out.split())
    assert note in write_report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(map(torch.equal, weights, trained(None, steps)))


def test_the_budget_of_a_launched_run_is_in_its_record(tmp_path: Path) -> None:
    run = Hook(tmp_path / "run", budget=0.5)
    trained(run, 2)
    assert open_run(tmp_path / "run").info.capture_budget == 0.5


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan"), True, "2 %"])
def test_an_invalid_budget_is_an_error(share: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"budget = .*above 0 and at most 1"):
        Hook(tmp_path / "run", budget=share)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
