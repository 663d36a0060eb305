"""The latest loss and metric beside a training's progress bar."""

from __future__ import annotations

from pathlib import Path

from vinedresser.cli.views.latest_values import LatestValues, fitting
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, start_run, step_record


def test_the_latest_loss_and_metric_are_shown(tmp_path: Path) -> None:
    records = [
        step_record(0, scalars={"losses/x": 2.0}),
        step_record(1, scalars={"losses/x": 0.25}),
        step_record(2, mode="eval", scalars={"metrics/accuracy": 0.5}),
    ]
    values = LatestValues(make_run(tmp_path / "run", records))
    assert values.parts(2, 10) == ["loss 0.25", "accuracy 0.5"]
    # The pace is known after further steps: the time left comes before the metric.
    loss, left, accuracy, pace = values.parts(4, 10)
    assert (loss, accuracy) == ("loss 0.25", "accuracy 0.5")
    assert left.endswith(" left")
    assert pace.endswith(" steps/s")
    assert len(values.parts(4, None)) == 3


def test_a_run_without_steps_shows_nothing(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    assert LatestValues(open_run(tmp_path / "run")).parts(0, None) == []


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    parts = ["loss 0.25", "3 s left", "accuracy 0.5"]
    assert fitting(parts, 80) == "loss 0.25   3 s left   accuracy 0.5"
    assert fitting(parts, 20) == "loss 0.25   3 s left"
    assert fitting(parts, 9) == "loss 0.25"
    assert fitting(parts, 0) == ""
