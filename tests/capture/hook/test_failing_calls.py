"""The n-th system call of a hook on its run fails: the training computes the same numbers."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.capture.hook.failing_training import STEPS, train, train_plainly
from tests.failing_calls.campaign import EVERY_ERROR, Case, Failure, failing_calls, run_campaign
from vinedresser.capture import open_run
from vinedresser.errors import NotARun
from vinedresser.store.reading.reader import Run

SCENARIO = "tests.capture.hook.failing_training:train"
# More calls than a run without a failure makes would mean that the numbering is wrong.
MOST_CALLS = 500
CONSEQUENCES = ("; training continues", "; readers may wait")


def check_stored(run: Run, whole: Run) -> int:
    """Check each stored value against a run without failures; return the number of its steps."""
    assert run.problems == []
    for name in run.tensor_names():
        for step in run.tensor(name).steps():
            stored = run.tensor(name).value(int(step))
            np.testing.assert_array_equal(stored, whole.tensor(name).value(int(step)))
    return len(run.steps("train"))


def check_unharmed(case: Case, numbers: list[float], whole: Run) -> None:
    """Check that the training is unharmed, and that what is lost was reported."""
    assert case.at < MOST_CALLS, case
    assert case.code == 0, case
    assert case.result["numbers"] == numbers, case
    problems = case.result["problems"]
    assert all(problem.endswith(CONSEQUENCES) for problem in problems), case
    said = case.stderr.splitlines()
    assert said == [f"vinedresser: {problem}" for problem in problems], case
    try:
        stored = check_stored(open_run(case.folder), whole)
    except NotARun:
        stored = 0
    assert stored == STEPS or problems, case
    if not case.call or case.failure.error == errno.EINTR:
        assert (stored, problems) == (STEPS, []), case


def check(tmp_path: Path, failures: list[Failure]) -> None:
    """Run the campaign; each failure ends with a run in which no call failed."""
    train(tmp_path / "whole")
    whole, numbers = open_run(tmp_path / "whole"), train_plainly()
    last = 0
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures):
        check_unharmed(case, numbers, whole)
        last += not case.call
    assert last == len(failures)


@pytest.mark.thorough
def test_a_failing_call_does_not_harm_the_training(tmp_path: Path) -> None:
    check(tmp_path, [Failure(errno.EIO, False, 4), Failure(errno.ENOSPC, True, 9)])


@pytest.mark.slow
def test_no_failing_call_harms_the_training(tmp_path: Path) -> None:
    check(tmp_path, EVERY_ERROR)
