"""The n-th system call of a judge on the run fails: the finding is there, or is made later."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Failure, failing_calls, run_campaign
from vinedresser.objects import LocalStorage
from vinedresser.rules.worker import judge_run
from vinedresser.store.reading.reader import open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record

GROUP, STEPS = "numbers", 4
SCENARIO = "tests.rules.test_failing_calls:judge"
QUICK = [Failure(errno.EIO, onwards=False, stride=2), Failure(errno.ENOSPC, onwards=True, stride=3)]


def prepare(folder: Path) -> None:
    """Write the run, and the rules beside it."""
    rules = {"nonfinite": {"group": GROUP}}
    folder.with_suffix(".rules").write_text(json.dumps({"rules": rules}))
    start_run(folder)
    writer = RunWriter(LocalStorage(folder))
    for step in range(STEPS):
        loss = 1.0 if step < STEPS - 1 else math.nan
        writer.add(step_record(step, scalars={"losses/loss": loss}))
        writer.flush()
    writer.close()
    end_run(folder)


def judge(folder: Path) -> int:
    """Judge the run; return the exit code."""
    return judge_run(str(folder), GROUP, folder.with_suffix(".rules"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY_ERROR, marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_no_finding_is_lost_whatever_call_fails(tmp_path: Path, failures: list[Failure]) -> None:
    whole = 0
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures):
        assert case.code == 0, case
        if case.result != 0:
            # The flow reports it; a judge that starts again makes the same finding.
            assert case.result == 3, case
            assert "vinedresser.rules.worker: " in case.stderr, case
            assert judge(case.folder) == 0, case
        found = open_run(case.folder).findings()
        assert [(one.rule, one.step) for one in found] == [("nonfinite", STEPS - 1)], case
        whole += not case.call
    assert whole == len(failures)
