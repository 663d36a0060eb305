"""The objective of a trial, read from its run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from vinedresser.sweeps.objective_history import ObjectiveHistory
from vinedresser.sweeps.settings import Objective
from vinedresser.testing.runs import make_run, step_record

ACCURACY = Objective("accuracy", "maximize")


def course(folder: Path, *goals: Objective) -> tuple[ObjectiveHistory, list[Any]]:
    """Follow a run of three epochs; return the course and what it said on the way."""
    records = []
    for step in range(9):
        scalars = {"losses/CrossEntropyLoss": 2.0 - step / 9, "metrics/grad_norm": 1.0}
        scalars["timing/step"] = 0.1
        records.append(step_record(step, scalars=scalars))
        if step % 3 == 2:
            evaluated = {"metrics/accuracy": step / 10, "losses/CrossEntropyLoss": 3.0 - step}
            records.append(step_record(step, mode="eval", scalars=evaluated))
    read = ObjectiveHistory(goals)
    return read, [read.add(step) for step in make_run(folder / "run", records).follow()]


def test_an_epoch_is_a_value_of_the_objective(tmp_path: Path) -> None:
    read, said = course(tmp_path, ACCURACY)
    assert [one for one in said if one] == [[(1, 0.2)], [(2, 0.5)], [(3, 0.8)]]
    assert read.result() == (0.8,)
    assert read.missing() == ""
    assert not read.misnamed
    # Without an evaluation, nothing says that the name is wrong: the trial may have been too short.
    short = ObjectiveHistory([ACCURACY])
    run = make_run(tmp_path / "short", [step_record(0, scalars={"losses/loss": 1.0})])
    assert [short.add(step) for step in run.follow()] == [[]]
    assert short.missing()
    assert not short.misnamed


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
    assert re.search(r"\bgrad_norm in mode eval; .* in mode train\b", read.missing())
    assert read.misnamed
    other, _ = course(tmp_path / "other", Objective("acuracy", "maximize"))
    assert other.misnamed
    assert "acuracy in mode eval" in other.missing()
    assert other.missing().endswith(
        "CrossEntropyLoss (eval), CrossEntropyLoss (train), accuracy (eval), grad_norm (train), "
        "loss (eval), loss (train)"
    )


def add(
    read: ObjectiveHistory, folder: Path, *values: tuple[int, float]
) -> list[tuple[int, float]]:
    """Report values of accuracy, each after so many steps of a run; return what is said of them."""
    records = [
        step_record(step, mode="eval", scalars={"metrics/accuracy": value})
        for step, value in values
    ]
    run = make_run(folder / f"run-{len([*folder.iterdir()])}", records)
    return [one for step in run.follow() for one in read.add(step)]


# Epochs of 20 steps each; the first run is broken off after the third, and saved at the step 60.
FIRST = [(20, 0.1), (40, 0.2), (60, 0.3)]


def test_a_run_that_goes_on_after_its_evaluation_counts_on(tmp_path: Path) -> None:
    read = ObjectiveHistory([ACCURACY])
    add(read, tmp_path, *FIRST, (80, 0.4))
    read.go_on(60)
    assert read.values == [[0.1, 0.2, 0.3]]
    assert add(read, tmp_path, (20, 0.41), (40, 0.5)) == [(4, 0.41), (5, 0.5)]


def test_a_run_that_evaluates_first_where_it_goes_on_says_the_same_epoch_again(
    tmp_path: Path,
) -> None:
    read = ObjectiveHistory([ACCURACY])
    add(read, tmp_path, *FIRST)
    read.go_on(60)
    assert add(read, tmp_path, (0, 0.31), (20, 0.4)) == [(3, 0.31), (4, 0.4)]
    assert read.values == [[0.1, 0.2, 0.31, 0.4]]


def test_a_third_run_goes_on_where_the_second_did(tmp_path: Path) -> None:
    read = ObjectiveHistory([ACCURACY])
    add(read, tmp_path, *FIRST)
    read.go_on(40)
    add(read, tmp_path, (20, 0.32), (40, 0.42))
    # The second was saved after 20 steps of its own.
    read.go_on(60)
    assert add(read, tmp_path, (20, 0.43)) == [(4, 0.43)]
    assert read.values == [[0.1, 0.2, 0.32, 0.43]]


def test_values_at_one_step_of_a_run_are_all_kept(tmp_path: Path) -> None:
    read = ObjectiveHistory([ACCURACY])
    assert add(read, tmp_path, (0, 0.1), (0, 0.2), (0, 0.3)) == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize(
    ("metric", "value"), [("accuracy", 0.75), ("eval/accuracy", 0.75), ("loss", 2.0)]
)
def test_the_names_of_mlflow_are_names_of_objectives(
    tmp_path: Path, metric: str, value: float
) -> None:
    computed = {"saved/accuracy/CrossEntropyLoss": 0.75, "losses/CrossEntropyLoss": 2.0}
    records = [step_record(0, mode="eval", scalars=computed | {"losses/Other": 3.0})]
    read = ObjectiveHistory([Objective(metric, "maximize")])
    said = [read.add(step) for step in make_run(tmp_path / "run", records).follow()]
    assert said == [[(1, value)]]


def test_what_is_a_loss_and_a_metric_is_one_value(tmp_path: Path) -> None:
    # So XGBoost's are recorded.
    records = [
        step_record(round_, mode="eval", scalars={"losses/accuracy": 0.1, "metrics/accuracy": 0.1})
        for round_ in range(3)
    ]
    read = ObjectiveHistory([ACCURACY])
    said = [read.add(step) for step in make_run(tmp_path / "run", records).follow()]
    assert said == [[(1, 0.1)], [(2, 0.1)], [(3, 0.1)]]
