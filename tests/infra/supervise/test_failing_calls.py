"""The n-th system call of a supervisor on the run fails: the training trains, and has an end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Failure, failing_calls, run_campaign
from tests.infra.supervise.failing_supervisor import TRAINED
from vinedresser.infra.supervise.launcher import settle
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, read_record

SCENARIO = "tests.infra.supervise.failing_supervisor:supervise"
QUICK = [Failure(errno.EIO, onwards=False, stride=2), Failure(errno.ENOSPC, onwards=True, stride=4)]
# A supervisor tries for a minute to write the exit record.
LIMIT = 4.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures",
    [
        QUICK,
        # Several minutes on a busy machine.
        pytest.param(EVERY_ERROR, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
    ids=["quick", "every"],
)
def test_every_training_ends_whatever_call_fails(tmp_path: Path, failures: list[Failure]) -> None:
    whole = 0
    library = failing_calls(tmp_path)
    for case in run_campaign(SCENARIO, library, tmp_path, failures, limit=LIMIT):
        assert "Traceback" not in case.stderr, case
        storage = LocalStorage(case.folder)
        recorded = read_record(storage, ExitRecord)
        trained = case.folder.with_suffix(".trained")
        if case.result == 0:
            assert recorded is not None, case
        else:
            # It says why, or was killed while it tried to record the end.
            assert case.stderr, case
            settle(case.folder, grace=0.0)
            recorded = read_record(storage, ExitRecord)
            assert recorded is not None, case
        if recorded.cause == "finished":
            assert trained.read_text() == TRAINED, case
        # A supervisor that began the training brought it to its end.
        assert not trained.exists() or trained.read_text() == TRAINED, case
        if not case.call:
            assert (case.result, recorded.cause, case.stderr) == (0, "finished", ""), case
            whole += 1
    assert whole == len(failures)
