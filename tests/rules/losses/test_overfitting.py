"""An evaluation loss that rises is overfitting only if what was learned holds no longer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from tests.rules.trainings import digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.overfitting import Overfitting
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record


def trained(path: Path, flipped: float) -> list[Finding]:
    """Train a classifier of tumours past its best evaluation; return the findings.

    Args:
        path: the run directory.
        flipped: share of labels that are wrong.
    """
    random = np.random.default_rng(0)
    measured, benign = load_breast_cancer(return_X_y=True)
    order = random.permutation(len(benign))
    x = torch.tensor((measured - measured.mean(0)) / measured.std(0))[order].float()
    labels = np.where(random.random(len(benign)) < flipped, 1 - benign, benign)
    y = torch.tensor(labels)[order].float()[:, None]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
    loss_fn, optimizer = nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), 1e-2)
    rules = [Overfitting()]
    hook = Hook(path, collections=capture_for(rules).collections)
    hook.watch(model, loss=loss_fn, optimizer=optimizer)
    with hook:
        for _ in range(25):
            model.train()
            for rows in torch.arange(300).split(30):
                optimizer.zero_grad()
                loss_fn(model(x[rows]), y[rows]).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                loss_fn(model(x[300:]), y[300:])
    return judge(open_run(path), rules)


@pytest.mark.parametrize(
    ("names", "later", "severity"),
    [
        # At the best loss, 62 of 64 rows are right.
        (["BCEWithLogitsLoss"], 52, "warning"),
        (["BCEWithLogitsLoss"], 62, "info"),
        # A script divides its loss.
        (["loss", "BCEWithLogitsLoss"], 62, "info"),
        (["loss", "BCEWithLogitsLoss"], 52, "warning"),
    ],
)
def test_the_accuracy_of_the_best_evaluation_decides(
    names: list[str], later: int, severity: str, tmp_path: Path
) -> None:
    labels = (np.arange(64.0) % 2)[:, None]
    records = []
    for epoch in range(40):
        step, train = 10 * epoch, {f"losses/{name}": 2.3 * 0.9**epoch for name in names}
        records += [step_record(step + one, scalars=train) for one in range(10)]
        right = 32 + 5 * epoch if epoch <= 6 else later
        logits = np.where((labels > 0) == (np.arange(64) < right)[:, None], 2.0, -2.0)
        loss = 2.0 * 0.6 ** min(epoch, 6) + (0.1 if epoch > 10 else 0.0)
        compared = {f"labels/{name}": labels for name in names}
        compared |= {f"predictions/{name}": logits for name in names}
        scalars = {f"losses/{name}": loss for name in names}
        records.append(step_record(step + 9, mode="eval", scalars=scalars, tensors=compared))
    found = judge(make_run(tmp_path / "run", records), [Overfitting(plateau=1000)])
    assert {one.severity for one in found} == {severity}


def test_probabilities_that_become_too_certain_are_a_hint(tmp_path: Path) -> None:
    (found,) = trained(tmp_path / "run", 0.0)
    assert (found.severity, found.fault) == ("info", "")
    assert "accuracy 0.9" in found.seen
    assert "as many are right as before" in found.cause


def test_memorised_wrong_labels_are_a_warning(tmp_path: Path) -> None:
    (found,) = trained(tmp_path / "run", 0.25)
    assert (found.severity, found.fault) == ("warning", "overfitting")


@pytest.mark.parametrize(
    ("score", "rise", "severities"),
    [
        ({"val_acc": (0.97, 0.97)}, 0.1, ["info"]),
        # Fewer are right than at the best loss, or the loss is not that of a good model.
        ({"val_acc": (0.97, 0.97)}, 1.5, ["warning"]),
        ({"val_acc": (0.97, 0.91)}, 0.1, ["warning"]),
        # Nothing says how many are right, or only another loss does.
        ({}, 0.1, ["warning"]),
        ({"val_loss": (0.1, 0.2)}, 0.1, ["warning"]),
        # First only the probabilities become worse, then the accuracy, too.
        ({"val_acc": (0.97, 0.5)}, 0.1, ["info", "warning"]),
    ],
)
def test_scores_decide(
    score: dict[str, tuple[float, float]], rise: float, severities: list[str], tmp_path: Path
) -> None:
    records = []
    for epoch in range(60):
        step, late = 10 * epoch, min(1.0, max(0.0, (epoch - 15) / 10))
        later = 0.0 if severities[:1] == ["info"] and epoch < 35 else late
        train = {"losses/loss": 2.3 * 0.9**epoch}
        records += [step_record(step + one, scalars=train) for one in range(10)]
        values = {"losses/loss": 2.0 * 0.6 ** min(epoch, 6) + rise * late}
        values |= {
            f"metrics/{name}": first + later * (last - first)
            for name, (first, last) in score.items()
        }
        records.append(step_record(step + 9, mode="eval", scalars=values))
    found = judge(make_run(tmp_path / "run", records), [Overfitting(plateau=1000)])
    assert [one.severity for one in found] == severities


@pytest.mark.parametrize("tasks", [[range(5), range(5, 10)], [range(10)]])
def test_classes_of_other_tasks_are_forgotten_not_overfitted(
    tasks: list[range], tmp_path: Path
) -> None:
    """Class by class, evaluations of all classes become worse; few rows of all are memorised."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    one_by_one = len(tasks) > 1
    most = 640 if one_by_one else 96
    y = data.y if one_by_one else torch.randint(10, data.y.shape)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), 1e-2)
    rules = [Overfitting()]
    hook = Hook(tmp_path / "run", collections=capture_for(rules).collections)
    hook.watch(model, loss=loss_fn, optimizer=optimizer)
    with hook:
        for task in tasks:
            rows = torch.isin(y, torch.tensor(task)).nonzero()[:most, 0]
            for step in range(80):
                batch = rows[torch.randint(len(rows), (32,))]
                optimizer.zero_grad()
                loss_fn(model.train()(data.x[batch]), y[batch]).backward()
                optimizer.step()
                if step % 3 == 2:
                    with torch.no_grad():
                        loss_fn(model.eval()(data.x_eval), data.y_eval)
    found = [one for one in judge(open_run(tmp_path / "run"), rules) if one.fault]
    assert [one.severity for one in found] == ([] if one_by_one else ["warning"])
