"""Progress of a sweep in the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vinedresser.cli.views.sweep_progress import SweepView, running_table
from vinedresser.cli.views.sweep_results import trials_table
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Trial, TrialEnd
from vinedresser.tasks.config.sweep_file import Sweep, load_sweep
from vinedresser.tasks.sweeping.sweep_result import SweepResult
from vinedresser.tasks.sweeping.sweep_runner import Standing

FILE = """
[sweep]
metric = "accuracy"
direction = "maximize"
trials = 10
epochs = 4
pruner = "none"
{more}

[space]
lr = { log = [1e-3, 1.0] }

[run]
name = "search"
command = ["python", "train.py"]
max_concurrent = 2
"""


def load(folder: Path, more: str = "") -> Sweep:
    """Return a sweep of ten trials, none of them started."""
    (folder / "train.py").write_text("", encoding="utf-8")
    path = folder / "sweep.toml"
    path.write_text(FILE.replace("{more}", more), encoding="utf-8")
    return load_sweep(path)


def run(study: Study, values: list[float], ending: TrialEnd | None = None) -> None:
    """Run a trial to its end."""
    trial = study.ask()
    assert trial is not None
    for epoch, value in enumerate(values, start=1):
        assert study.report(trial.number, epoch, value) is None
    study.tell(trial.number, ending or TrialEnd("finished"), values[-1:])


def test_each_trial_is_reported_once_and_all_are_counted(tmp_path: Path) -> None:
    sweep = load(tmp_path)
    study = sweep.study()
    view = SweepView(Standing(sweep, [], study.ended), 0.0)
    run(study, [0.5, 0.6, 0.7, 0.8])
    run(study, [0.1], TrialEnd("stopped", "nothing moves", "all_zero"))
    assert study.ask() is not None
    standing = Standing(sweep, study.running(), study.ended)
    assert [line.plain for _, line in view.ends(standing)] == [
        "trial-0000   epoch 4 of 4   accuracy 0.8   finished",
        "trial-0001   epoch 1 of 4   accuracy 0.1   stopped by all_zero: nothing moves",
    ]
    assert list(view.ends(standing)) == []
    said = view.summary(standing, 10.0)
    # Five of the eight epochs that two whole trials take; too few trials to say how long it takes.
    for fact in (
        "2 of 10 trials",
        "(1 finished, 1 stopped)",
        "1 running",
        "best trial-0000: accuracy 0.8",
        "38 % of the epochs saved",
    ):
        assert fact in said


def test_crashes_save_nothing_and_a_prepared_trial_does_not_run(tmp_path: Path) -> None:
    sweep = load(tmp_path)
    study = sweep.study()
    view = SweepView(Standing(sweep, [], study.ended), 0.0)
    run(study, [0.5], TrialEnd("failed", "exit code 1"))
    for _ in range(3):
        assert study.ask() is not None
    standing = Standing(sweep, study.running(), study.ended)
    assert len(list(view.ends(standing))) == 1
    said = view.summary(standing, 10.0)
    # Two at a time.
    assert "2 running" in said
    assert "0 % of the epochs saved" in said


@pytest.mark.parametrize(
    ("room", "columns"),
    [
        (120, ["running", "epoch", "accuracy", "now", "parameters"]),
        (50, ["running", "epoch", "accuracy", "now"]),
        (40, ["running", "accuracy", "now"]),
        (30, ["running", "accuracy"]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_of_running_trials(
    tmp_path: Path, room: int, columns: list[str]
) -> None:
    sweep = load(tmp_path)
    study = sweep.study()
    for _ in range(2):
        assert study.ask() is not None
    standing = Standing(sweep, study.running(), study.ended)
    table = running_table(standing, {"trial-0000": "step 40   loss 0.5"}, room)
    assert [column.header for column in table.columns] == columns
    if "now" in columns:
        cells = list(table.columns[columns.index("now")].cells)
        assert [str(cell) for cell in cells] == ["step 40   loss 0.5", "starting"]


@pytest.mark.parametrize(
    ("room", "columns"),
    [
        (None, ["trial", "ended", "epochs", "accuracy", "parameters", "why"]),
        (100, ["trial", "ended", "epochs", "accuracy", "parameters", "why"]),
        (70, ["trial", "ended", "accuracy", "parameters", "why"]),
        (52, ["trial", "ended", "accuracy", "parameters"]),
        (35, ["trial", "ended", "accuracy"]),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_of_results(
    tmp_path: Path, room: int | None, columns: list[str]
) -> None:
    sweep = load(tmp_path)
    trials = tuple(
        Trial(number, {"lr": 0.1, "width": 32, "depth": 2}, {1: 0.5}, ending=ending)
        for number, ending in enumerate(
            [TrialEnd("finished"), TrialEnd("stopped", "the loss is not finite", "nonfinite")]
        )
    )
    swept = SweepResult("search", tmp_path, trials, (), {}, "all trials have begun", "", (), "")
    table = trials_table(swept, sweep.settings, room)
    assert [column.header for column in table.columns] == columns


def test_the_time_left_is_limited_by_trials_and_budget(tmp_path: Path) -> None:
    sweep = load(tmp_path)
    study = sweep.study()
    run(study, [0.5])
    # One trial of an earlier process says nothing of how long one takes.
    view = SweepView(Standing(sweep, [], study.ended), 100.0)
    for _ in range(3):
        run(study, [0.5])
    standing = Standing(sweep, [], study.ended)
    assert len(list(view.ends(standing))) == 3
    # Three took 30 s; six are left.
    assert view.summary(standing, 130.0).endswith(", 60 s left")
    hurried = replace(sweep, settings=replace(sweep.settings, wall_time="40 s"))
    assert view.summary(standing._replace(sweep=hurried), 130.0).endswith(", 10 s left")


@pytest.mark.parametrize(("direction", "best"), [("maximize", "0.9"), ("minimize", "0.2")])
def test_the_best_trial_respects_the_direction(tmp_path: Path, direction: str, best: str) -> None:
    sweep = load(tmp_path)
    text = sweep.experiment.path.read_text(encoding="utf-8").replace("maximize", direction)
    sweep.experiment.path.write_text(text, encoding="utf-8")
    sweep = load_sweep(sweep.experiment.path)
    study = sweep.study()
    view = SweepView(Standing(sweep, [], study.ended), 0.0)
    for value in (0.5, 0.9, 0.2):
        run(study, [value])
    standing = Standing(sweep, [], study.ended)
    assert len(list(view.ends(standing))) == 3
    assert f": accuracy {best}," in view.summary(standing, 1.0)
