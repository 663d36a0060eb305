"""The accuracy of classifications is computed of what their losses compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig
from vinedresser.explain.comparison.compared_run import named_scalars
from vinedresser.store.reading.reader import open_run

Loss = Callable[[Tensor, Tensor], Tensor]
ROWS = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.randint(0, 3, (70,), generator=torch.Generator().manual_seed(1))


def trained(
    path: Path, loss: Loss, classes: Tensor = CLASSES, *, report: bool = False
) -> tuple[list[float], dict[str, list[float]], list[Tensor]]:
    """Train on 40 rows in two steps; evaluate 30 in batches of 16 and 14 after each.

    Returns:
        The accuracies of the evaluations, the scalars of the run by name, and the weights.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    compared = dict.fromkeys(("labels", "predictions"), SaveConfig(every=1))
    shares = []
    with Hook(path, collections=compared) as hook:
        given: Any = loss if isinstance(loss, nn.Module) else None
        hook.watch(model, loss=given, optimizer=optimizer)
        for _ in range(2):
            model.train()
            optimizer.zero_grad()
            loss(model(ROWS[:40]), classes[:40]).backward()
            optimizer.step()
            model.eval()
            right = counted = 0
            with torch.no_grad():
                for batch in (slice(40, 56), slice(56, 70)):
                    outputs = model(ROWS[batch])
                    loss(outputs, classes[batch])
                    kept = classes[batch] != getattr(loss, "ignore_index", -100)
                    right += int((outputs.argmax(1) == classes[batch])[kept].sum())
                    counted += int(kept.sum())
                shares.append(right / counted)
                if report:
                    hook.metric("accuracy", 0.125)
    run = open_run(path)
    named = {name: one.values.tolist() for name, one in named_scalars(run).items()}
    return shares, named, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=1), F.cross_entropy],
    ids=["module", "ignored label", "function"],
)
def test_the_accuracy_of_an_evaluation_is_that_of_all_its_rows(tmp_path: Path, loss: Loss) -> None:
    shares, named, _ = trained(tmp_path / "run", loss)
    assert named["eval/accuracy"] == pytest.approx(shares)
    assert len(named["train/accuracy"]) == 2


def test_it_is_not_mixed_with_what_the_script_reports(tmp_path: Path) -> None:
    _, named, _ = trained(tmp_path / "run", nn.CrossEntropyLoss(), report=True)
    assert named["eval/accuracy"] == [0.125, 0.125]
    # What the rules look at is only what the script reports.
    assert [*open_run(tmp_path / "run").scalars("metrics")] == ["metrics/accuracy"]


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (nn.CrossEntropyLoss(), F.one_hot(CLASSES).float()),
        (nn.MSELoss(), F.one_hot(CLASSES).float()),
    ],
    ids=["shares of classes", "values"],
)
def test_without_class_numbers_there_is_no_accuracy(
    tmp_path: Path, loss: Loss, classes: Tensor
) -> None:
    torch.manual_seed(0)
    model, path = nn.Linear(5, 3), tmp_path / "run"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with Hook(path, collections={"labels": SaveConfig(every=1)}) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        loss(model(ROWS), classes).backward()
        optimizer.step()
    assert [*named_scalars(open_run(path))] == ["train/loss"]
