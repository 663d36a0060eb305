"""A loss that explodes within a few steps, after which the script fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.rules.signals.losses.loss_progress import LossProgress
from vinedresser.store.reading.reader import open_run


class Autoencoder(nn.Module):
    """A variational autoencoder of digits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(code).sigmoid(), mean, log_variance


def train(path: Path, lr: float) -> None:
    torch.manual_seed(0)
    x = digits().x
    x = (x - x.min()) / (x.max() - x.min())
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr)
    with Hook(
        path, collections=capture_for([LearningRateTooHigh()]).collections, parameters={"lr": lr}
    ) as hook:
        hook.watch(model, optimizer=optimizer)
        for rows in x.split(100)[:15]:
            decoded, mean, log_variance = model(rows)
            error = nn.functional.binary_cross_entropy(decoded, rows, reduction="sum")
            loss = error - (1 + log_variance - mean**2 - log_variance.exp()).sum() / 2
            optimizer.zero_grad()
            loss.backward()
            hook.save("losses/loss", loss)
            optimizer.step()


def test_a_script_that_fails_after_few_steps_had_a_high_learning_rate(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        train(tmp_path / "run", 3.0)
    run = open_run(tmp_path / "run")
    assert len(run.steps("train")) < 15
    (finding,) = judge(run, [LearningRateTooHigh()])
    assert "rose from" in finding.seen
    assert f"in {len(run.steps('train'))} steps" in finding.seen
    assert finding.correction == {"lr": 0.03}


def test_the_same_training_with_a_usual_learning_rate_is_ignored(tmp_path: Path) -> None:
    train(tmp_path / "run", 1e-3)
    assert judge(open_run(tmp_path / "run"), [LearningRateTooHigh()]) == []


@pytest.mark.parametrize(
    ("losses", "exploded"),
    [
        ([2.0, 3e3, 3e7], True),
        ([2.0, 3e7, 3e3], False),
        ([0.0, 3e7], False),
        ([1e-3, -1.0, 900.0], False),
    ],
)
def test_a_few_losses_explode_or_do_not(losses: list[float], exploded: bool) -> None:
    progress = LossProgress(patience=200, drop=0.1)
    for step, value in enumerate(losses, 7):
        progress.add(step, value)
    stretch = progress.exploded()
    assert (stretch is not None) == exploded
    assert stretch is None or (stretch.first, stretch.level) == (9, 3e7)


def train_classifier(path: Path, lr: float) -> None:
    """Train on digits for 15 steps."""
    torch.manual_seed(0)
    data = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    collections = capture_for([LearningRateTooHigh()]).collections
    with Hook(path, collections=collections, parameters={"lr": lr}) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for x, y in list(zip(data.x.split(64), data.y.split(64), strict=True))[:15]:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()


def test_a_first_step_that_replaces_the_weights_and_throws_the_loss_up_is_warned_of(
    tmp_path: Path,
) -> None:
    train_classifier(tmp_path / "run", 50.0)
    run = open_run(tmp_path / "run")
    (finding,) = judge(run, [LearningRateTooHigh(overshoot=1e9)])
    assert (finding.step, finding.severity) == (10, "warning")
    assert "the ten losses after the first one are above twice its value" in finding.seen

    train_classifier(tmp_path / "usual", 0.5)
    assert judge(open_run(tmp_path / "usual"), [LearningRateTooHigh()]) == []


@pytest.mark.parametrize(
    ("losses", "risen"),
    [
        ([2.0, *[5.0] * 10], True),
        ([2.0, *[5.0] * 9], False),
        ([2.0, *[5.0] * 10, 3.9], False),
        ([0.1, -9.0, *[5.0] * 10], False),
        # Such as that of a value function before the first reward.
        ([0.0, *[5.0] * 10], False),
    ],
)
def test_a_loss_has_risen_at_once_or_not(losses: list[float], risen: bool) -> None:
    progress = LossProgress(patience=200, drop=0.1)
    for step, value in enumerate(losses):
        progress.add(step, value)
    assert progress.risen_at_once() == risen
