"""The n-th system call of a sweep's journal fails: a resumed sweep knows all that it was told."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Failure, failing_calls, run_campaign
from tests.sweeps.failing_sweep import JOURNAL, TRIALS
from tests.sweeps.studies import run, study

SCENARIO = "tests.sweeps.failing_sweep:sweep"
QUICK = [Failure(errno.ENOSPC, onwards=True), Failure(errno.EIO, onwards=False, stride=2)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY_ERROR, marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_a_sweep_resumes_whatever_call_failed(tmp_path: Path, failures: list[Failure]) -> None:
    whole = 0
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures):
        assert case.code == 0, case
        assert (case.result["error"] == "") == (case.result["told"] == TRIALS), case
        resumed = study(case.folder / JOURNAL, trials=TRIALS + 1, sampler="random")
        finished = [trial.result for trial in resumed.trials() if trial.ending.state == "finished"]
        told = case.result["told"]
        assert finished[:told] == [(float(value),) for value in range(told)], case
        run(resumed, [9.0])
        assert resumed.best()[0].result == (9.0,), case
        resumed.close()
        whole += not case.call
    assert whole == len(failures)
