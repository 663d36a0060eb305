"""`vinedresser show RUN NAME`: values over the steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from vinedresser.cli.views.show import show_name
from vinedresser.errors import UnknownStep
from vinedresser.testing.runs import make_run, step_record


def test_statistics_of_different_steps_are_joined_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        step_record(0, reductions={"gradients/w": {"l2": 1.0}}),
        step_record(1, reductions={"gradients/w": {"max": 2.0}}),
        step_record(2, reductions={"gradients/w": {"l2": 3.0}}),
        step_record(3, reductions={"gradients/w": {"max": 4.0}}),
        step_record(4, reductions={"gradients/w": {"max": 5.0}}),
    ]
    run = make_run(tmp_path / "run", records)
    show_name(run, "gradients/w", step=None, mode="train", rank=0)
    printed = capsys.readouterr().out
    assert "5 of 5 steps" in printed
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in printed.splitlines()
        if line.startswith("│")
    ]
    assert rows == [["0", "1", ""], ["1", "", "2"], ["2", "3", ""], ["3", "", "4"], ["4", "", "5"]]


def test_a_metric_of_evaluations_names_their_mode(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [step_record(0, mode="eval", scalars={"metrics/acc": 0.5})])
    with pytest.raises(UnknownStep, match="--mode eval"):
        show_name(run, "metrics/acc", step=None, mode="train", rank=0)
