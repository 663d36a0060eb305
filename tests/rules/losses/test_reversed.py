"""Losses and metrics that are opposed to each other, on real trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


def pairwise(difference: Tensor, wins: Tensor) -> Tensor:
    """Return the loss of RankNet of pairs; differences and wins (-1 or 1) are [pairs]."""
    return functional.softplus(-wins * difference).mean()


def ranked(
    folder: Path, loss: Callable[[Tensor, Tensor], Tensor], *, warmup: int = 0
) -> list[Finding]:
    """Train a ranking of rows by pairs, report its AUC every 20 steps, and judge the run.

    Args:
        folder: directory of the run.
        loss: loss of some pairs.
        warmup: steps with a learning rate of almost 0.
    """
    rules = [Underfitting(), LearningRateTooLow()]
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    rows = torch.randn(300, 8, generator=generator)
    quality = rows @ torch.randn(8, generator=generator)
    last = nn.Linear(16, 1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with torch.no_grad():
        # A random network that ranks in the opposite order, by chance.
        if roc_auc_score(quality > 0, model(rows)[:, 0].numpy()) > 0.5:
            last.weight.neg_()
    with Hook(folder, collections=capture_for(rules).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(240):
            optimizer.param_groups[0]["lr"] = 1e-9 if step < warmup else 3e-3
            one, other = torch.randint(0, 200, (2, 64), generator=generator)
            difference = (model(rows[one]) - model(rows[other]))[:, 0]
            optimizer.zero_grad()
            loss(difference, (quality[one] > quality[other]).float() * 2 - 1).backward()
            optimizer.step()
            if step % 20 == 0:
                with torch.no_grad():
                    scores = model(rows[200:])[:, 0].numpy()
                hook.metric("auc", float(roc_auc_score(quality[200:] > 0, scores)))
    return [one for one in judge(open_run(folder), rules) if one.severity != "info"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loss", "fault"),
    [
        (lambda difference, wins: -pairwise(difference, wins), "loss_output_mismatch"),
        # The predictions are right by these labels.
        (lambda difference, wins: pairwise(difference, -wins), "corrupt_labels"),
    ],
)
def test_a_metric_far_below_guessing_shows_a_reversed_loss(
    loss: Callable[[Tensor, Tensor], Tensor], fault: str, tmp_path: Path
) -> None:
    (finding,) = ranked(tmp_path / "run", loss)
    assert (finding.rule, finding.fault) == ("underfitting", fault)
    assert finding.severity == "warning"
    assert (finding.tensor, finding.threshold) == ("metrics/auc", 0.5)
    assert finding.value < 0.3
    assert finding.step < 240


@pytest.mark.thorough
@pytest.mark.parametrize("warmup", [0, 160])
def test_an_untrained_model_below_guessing_is_no_alarm(warmup: int, tmp_path: Path) -> None:
    assert ranked(tmp_path / "run", pairwise, warmup=warmup) == []


@pytest.mark.parametrize("learns", [True, False])
def test_a_running_mean_that_falls_at_first_is_no_alarm(*, learns: bool, tmp_path: Path) -> None:
    """As Keras reports it of each epoch: an untrained model may be far below guessing."""
    last = 0.97 if learns else 0.15
    values = [*np.linspace(0.45, 0.15, 12), *np.linspace(0.15, last, 188)]
    records = [
        step_record(step, scalars={"metrics/auc": value, "losses/loss": 0.8 * 0.99**step})
        for step, value in enumerate(values)
    ]
    run = make_run(tmp_path / "run", records, framework="keras")
    found = [one for one in judge(run, [Underfitting()]) if one.severity != "info"]
    assert [one.fault for one in found] == ([] if learns else ["loss_output_mismatch"])
    assert all(one.step >= 100 for one in found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sign", "shift", "wrong_labels"), [(1, 1, True), (1, 2, True), (-1, 0, False)]
)
def test_classes_counted_from_another_number_are_told_from_a_wrong_sign(
    sign: int, shift: int, tmp_path: Path, *, wrong_labels: bool
) -> None:
    """An accuracy near 0 has two causes; the predictions on training rows tell which it is."""
    rules = [Underfitting()]
    data, loss = digits(), nn.CrossEntropyLoss()
    few, few_eval = data.y < 3, data.y_eval < 3
    x, y = data.x[few], data.y[few]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    collections = capture_for(rules).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=300) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(x), 64)
        for step in range(300):
            chosen = next(rows)
            optimizer.zero_grad()
            (sign * loss(model(x[chosen]), (y[chosen] + shift) % 3)).backward()
            optimizer.step()
            if step % 20 == 0:
                with torch.no_grad():
                    right = model(data.x_eval[few_eval]).argmax(1) == data.y_eval[few_eval]
                hook.metric("accuracy", float(right.float().mean()))
    findings = [one for one in judge(open_run(tmp_path / "run"), rules) if one.severity != "info"]
    assert findings
    assert {finding.fault == "corrupt_labels" for finding in findings} == {wrong_labels}


def slopes(folder: Path, sign: float) -> list[Finding]:
    """Learn energies, and with a small weight forces, from points; judge the run.

    Args:
        folder: directory of the run.
        sign: sign of the gradient of the energy that is compared with the force; -1 is right.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rule, steps = Underfitting(), 300
    points = torch.randn(512, 3)
    energy, force = points.square().sum(1, keepdim=True) / 2, -points
    model = nn.Sequential(nn.Linear(3, 32), nn.Softplus(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def of_forces(slope: Tensor, wanted: Tensor) -> Tensor:
        return functional.mse_loss(slope, wanted)

    hook = Hook(folder, collections=capture_for([rule]).collections, total_steps=steps)
    with hook:
        hook.watch(model, optimizer=optimizer)
        error = hook.loss(of_forces)
        for _ in range(steps):
            rows = torch.randint(512, (64,))
            atoms = points[rows].requires_grad_()
            found = model(atoms)
            (slope,) = torch.autograd.grad(found.sum(), atoms, create_graph=True)
            off = functional.mse_loss(found, energy[rows])
            optimizer.zero_grad()
            (off + 0.01 * error(sign * slope, force[rows])).backward()
            optimizer.step()
    return judge(open_run(folder), [rule])


@pytest.mark.thorough
def test_numbers_of_the_opposite_sign(tmp_path: Path) -> None:
    (finding,) = slopes(tmp_path / "run", 1.0)
    assert finding.fault == "loss_output_mismatch"
    assert "opposite" in finding.cause
    assert slopes(tmp_path / "right", -1.0) == []
