"""The n-th system call of a judge on the run fails: the finding is there, or is made later."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Failure, failing_calls, run_campaign
from tests.rules.failing_judge import STEPS, judge
from vinedresser.store.reading.reader import open_run

SCENARIO = "tests.rules.failing_judge:judge"
QUICK = [Failure(errno.EIO, onwards=False, stride=2), Failure(errno.ENOSPC, onwards=True, stride=3)]


@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY_ERROR, marks=pytest.mark.thorough)], ids=["quick", "all"]
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
