"""`vinedresser show RUN` lists the streams that the run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from vinedresser.cli.views.show import show_run
from vinedresser.queries.asking import ask
from vinedresser.queries.stored.saving import saved
from vinedresser.testing.runs import make_run, step_record


def test_streams_are_listed_and_damage_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [step_record(step, scalars={"losses/loss": float(step)}) for step in range(12)]
    run = make_run(tmp_path / "run", records)
    assert len(list(saved(ask(run, "loss", "3 steps"), run, "mean-loss"))) == 4
    (tmp_path / "run" / "streams" / "mean-loss" / "0" / "000001.jsonl").write_text("{}\n")
    show_run(run)
    printed = capsys.readouterr().out
    assert "stream mean-loss   loss   per 3 steps   4 answers, steps 0 to 11" in printed
    assert "000001.jsonl: line 1 is not an answer" in printed
