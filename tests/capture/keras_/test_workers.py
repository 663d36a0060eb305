"""Workers of TensorFlow's MultiWorkerMirroredStrategy, launched as ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, read_record

SCRIPT = ROOT / "tests/capture/keras_/workers_training.py"


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_workers_train_together_and_the_one_that_fails_is_named(tmp_path: Path) -> None:
    vinedresser("run", "--ranks", "2", "--name", "one", str(SCRIPT), cwd=tmp_path)
    run = tmp_path / "runs/one"
    end = read_record(LocalStorage(run), ExitRecord)
    assert end is not None
    assert (end.cause, end.code, end.rank) == ("crashed", 1, 1)
    assert end.reason == "rank 1: ValueError: no such label"
    first, second = (
        re.findall(r"^weights: (.*)$", (run / f"logs/{rank}.txt").read_text(), re.MULTILINE)
        for rank in range(2)
    )
    assert first == second != []
