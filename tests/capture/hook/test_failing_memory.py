"""The n-th large allocation fails: the training computes the same numbers, and losses are told."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.capture.hook.failing_memory import STEPS, TENSOR, trained
from tests.failing_calls.campaign import Case, Failure, failing_calls, run_campaign
from vinedresser.capture import open_run

SCENARIO = "tests.capture.hook.failing_memory:train_and_read"
EVERY = [Failure(errno.ENOMEM, onwards) for onwards in (False, True)]
QUICK = [Failure(errno.ENOMEM, onwards=True, stride=5)]


def check(case: Case, first: float) -> None:
    """Check the numbers of the training, what is stored, and that the rest was reported."""
    assert case.code == 0, case
    assert case.result["numbers"] == [first * trained(step) for step in range(STEPS)], case
    problems, refused = case.result["problems"], case.result["refused"]
    assert case.stderr.splitlines() == [f"vinedresser: {problem}" for problem in problems], case
    run = open_run(case.folder)
    # All of the values, although the training may have failed to read them.
    steps = run.tensor(TENSOR).steps().tolist() if TENSOR in run.tensor_names() else []
    for step in steps:
        assert run.tensor(TENSOR).value(step)[0, 0] == first * trained(step), case
    norms = run.reductions("l2").get(TENSOR)
    whole = steps == list(range(STEPS)) and norms is not None and len(norms) == STEPS
    assert whole or problems, case
    assert run.problems == [], case
    assert all("bytes do not fit into memory" in message for message in refused), case
    if not case.call:
        assert (steps, problems, refused) == (list(range(STEPS)), [], []), case


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_no_failing_allocation_harms_the_training(tmp_path: Path, failures: list[Failure]) -> None:
    first = float(np.random.default_rng(0).standard_normal((256, 1024))[0, 0])
    # The interpreter that forks the cases has trained once itself.
    first *= trained(STEPS - 1)
    calls = []
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures):
        check(case, first)
        calls.append(case.call)
    assert calls.count("") == len(failures)
    assert "allocation" in calls
