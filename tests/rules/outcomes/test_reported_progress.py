"""What metrics show of the progress of a training whose loss falls, on real trainings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.trainings import batches, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record

_STEPS = 400

# Returns metrics of a model of digits on rows [N, 64] with classes [N].
Measure = Callable[[nn.Module, Tensor, Tensor], Mapping[str, float]]


def error(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return the mean loss."""
    return {"val_loss": float(nn.functional.cross_entropy(model(x), y))}


def rounded(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return a loss of which too few digits are left to change."""
    return {"val_loss": round(error(model, x, y)["val_loss"], -1) + 2.3}


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return the share of rows that are right."""
    return {"accuracy": float((model(x).argmax(1) == y).float().mean())}


def learned(
    folder: Path,
    measure: Measure,
    evaluated: Callable[[nn.Module], nn.Module],
    times: int = 16,
) -> list[Finding]:
    """Learn digits, measure, and judge.

    Args:
        measure: what is reported.
        evaluated: returns the model that is evaluated, once.
        times: number of measurements, the last of which is at the last step.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, rule = digits(), Underfitting()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    used = evaluated(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rows = batches(len(data.x), 64)
    hook = Hook(folder, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(_STEPS):
            chosen = next(rows)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data.x[chosen]), data.y[chosen])
            loss.backward()
            optimizer.step()
            if (step + 1) % (_STEPS // times) == 0:
                with torch.no_grad():
                    for name, value in measure(used, data.x_eval, data.y_eval).items():
                        hook.metric(name, value)
    return [one for one in judge(open_run(folder), [rule]) if one.severity != "info"]


@pytest.mark.parametrize("measure", [error, accuracy])
def test_a_copy_that_is_evaluated_is_found(measure: Measure, tmp_path: Path) -> None:
    (finding,) = learned(tmp_path / "run", measure, copy.deepcopy)
    assert (finding.rule, finding.severity) == ("underfitting", "warning")
    assert "all 16 times, while the training loss fell" in finding.seen
    assert "not the one that is trained" in finding.cause


@pytest.mark.parametrize("measure", [error, accuracy, rounded])
def test_the_model_that_is_trained_is_no_alarm(measure: Measure, tmp_path: Path) -> None:
    assert learned(tmp_path / "run", measure, lambda model: model) == []


def test_a_number_of_the_last_step_has_not_stood(tmp_path: Path) -> None:
    assert learned(tmp_path / "run", error, copy.deepcopy, times=1) == []


def names(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return constants that measure something else, or are as good as can be."""
    best = {"accuracy": 1.0, "val_mse": 0.0, "best_loss": 0.123456, "teacher_loss": 0.123456}
    # The best accuracy was the first one; float32 has not the decimal 0.1.
    best |= {"best_accuracy": 0.4, "val_mae": float(np.float32(0.1))}
    # No model has found a rare class, or predicted a whole sentence.
    return {**best, "val_f1": 0.0, "learning_error_bound": 0.123456}


def test_constants_that_are_no_results_are_ignored(tmp_path: Path) -> None:
    assert learned(tmp_path / "run", names, lambda model: model) == []


@pytest.mark.parametrize(
    ("name", "since", "told"),
    [
        ("losses/loss", 0, True),
        ("losses/loss", 300, True),
        ("losses/teacher_loss", 0, False),
        ("metrics/auc", 0, True),
        ("metrics/auc", 300, False),
    ],
)
def test_a_number_that_stands(name: str, since: int, *, told: bool, tmp_path: Path) -> None:
    """A loss that is almost 0 falls on without a change of any prediction."""
    records = []
    for step in range(_STEPS):
        records.append(step_record(step, scalars={"losses/loss": 2 * 0.97**step}))
        if step >= since and step % 10 == 9:
            records.append(step_record(step, mode="eval", scalars={name: 0.612345}))
    found = judge(make_run(tmp_path / "run", records), [Underfitting()])
    assert ["was exactly 0.612345" in one.seen for one in found] == [True] * told


def test_a_return_that_rises_in_training_has_risen(tmp_path: Path) -> None:
    records = []
    for step in range(0, _STEPS, 5):
        rises = {"losses/loss": 2 * 0.99**step, "metrics/reward": step / 100}
        records.append(step_record(step, scalars=rises))
        if step % 50 == 0:
            stands = {"metrics/reward": 0.5 - step / 2000}
            records.append(step_record(step, mode="eval", scalars=stands))
    assert judge(make_run(tmp_path / "run", records), [Underfitting()]) == []


def chosen(folder: Path, *, follow: float) -> list[Finding]:
    """Learn which of five arms pays most in eight states, from what random choices paid.

    Args:
        follow: share of the last choices that follow the learned values.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    pay = torch.rand(8, 5, generator=generator)
    model, rule = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5)), Underfitting()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    hook = Hook(folder, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(_STEPS):
            state = torch.randint(8, (64,), generator=generator)
            inputs = nn.functional.one_hot(state, 8).float()
            values = model(inputs)
            greedy = torch.rand(64, generator=generator) < follow * step / _STEPS
            drawn = torch.randint(5, (64,), generator=generator)
            action = torch.where(greedy, values.argmax(1), drawn)
            paid = pay[state, action]
            optimizer.zero_grad()
            nn.functional.mse_loss(values.gather(1, action[:, None])[:, 0], paid).backward()
            optimizer.step()
            if step % 10 == 0:
                hook.metric("reward", float(paid.mean()))
    return [one for one in judge(open_run(folder), [rule]) if one.severity != "info"]


@pytest.mark.parametrize("follow", [0.0, 1.0])
def test_a_loss_that_falls_says_nothing_of_a_policy(follow: float, tmp_path: Path) -> None:
    found = chosen(tmp_path / "run", follow=follow)
    # Whether it should have risen, nobody knows.
    assert [one.is_about_rule for one in found] == ([] if follow else [True])
    assert all("reward was 0." in one.seen for one in found)


@pytest.mark.parametrize("signal", [0.35, 1.0])
def test_metrics_near_guessing_are_told(signal: float, tmp_path: Path) -> None:
    """Noise that nobody can predict looks like a model that has learned nothing."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(600, 8)
    y = signal * x[:, :1] + torch.randn(600, 1) * (1 if signal < 1 else 0.1) + 4
    model, rule = nn.Linear(8, 1), Underfitting()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    hook = Hook(tmp_path / "run", collections=capture_for([rule]).collections, total_steps=800)
    with hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(800):
            optimizer.zero_grad()
            # Nothing tells what the loss compares.
            (model(x[:500]) - y[:500]).square().mean().backward()
            optimizer.step()
            if step >= 400 and step % 40 == 0:
                with torch.no_grad():
                    left = (model(x[500:]) - y[500:]).square().mean() / y[500:].var()
                hook.metric("r2", float(1 - left))
    found = [one for one in judge(open_run(tmp_path / "run"), [rule]) if one.severity != "info"]
    assert all("R2 is" in one.seen for one in found)
    assert [one.is_about_rule for one in found] == ([] if signal == 1 else [True])
