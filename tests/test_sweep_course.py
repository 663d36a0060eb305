"""The objective of a trial, read from its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vinedresser.sweeps.course import Course
from vinedresser.sweeps.settings import Objective
from vinedresser.testing.runs import make_run, step_record

ACCURACY = Objective("accuracy", "maximize")


def course(folder: Path, *goals: Objective) -> tuple[Course, list[Any]]:
    """Follow a run of three epochs; return the course and what it said on the way."""
    records = []
    for step in range(9):
        scalars = {"losses/CrossEntropyLoss": 2.0 - step / 9, "metrics/grad_norm": 1.0}
        records.append(step_record(step, scalars=scalars))
        if step % 3 == 2:
            evaluated = {"metrics/accuracy": step / 10, "losses/CrossEntropyLoss": 3.0 - step}
            records.append(step_record(step, mode="eval", scalars=evaluated))
    read = Course(goals)
    return read, [read.add(step) for step in make_run(folder / "run", records).follow()]


def test_an_epoch_is_a_value_of_the_objective(tmp_path: Path) -> None:
    read, said = course(tmp_path, ACCURACY)
    assert [one for one in said if one] == [[(1, 0.2)], [(2, 0.5)], [(3, 0.8)]]
    assert read.result() == (0.8,)
    assert read.missing() == ""


@pytest.mark.parametrize(("value", "result"), [("last", -5.0), ("best", -5.0), ("mean", -2.0)])
def test_a_loss_can_be_the_objective(tmp_path: Path, value: Any, result: float) -> None:
    read, _ = course(tmp_path, Objective("CrossEntropyLoss", "minimize", value))
    assert list(read.result()) == pytest.approx([result])


def test_several_objectives_each_have_their_value(tmp_path: Path) -> None:
    loss = Objective("CrossEntropyLoss", "minimize", mode="train")
    read, said = course(tmp_path, ACCURACY, loss)
    assert len([one for one in said if one]) == 3
    assert list(read.result()) == pytest.approx([0.8, 2.0 - 8 / 9])


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path) -> None:
    read, said = course(tmp_path, Objective("grad_norm", "minimize"))
    assert not any(said)
    assert read.result() == ()
    assert read.missing() == (
        "no value of grad_norm in mode eval; there were some in mode train: set mode"
    )
    other, _ = course(tmp_path / "other", Objective("acuracy", "maximize"))
    assert other.missing() == (
        "no value of acuracy in mode eval; the run recorded CrossEntropyLoss (eval), "
        "CrossEntropyLoss (train), accuracy (eval), grad_norm (train)"
    )
