"""The n-th system call of a writer fails: nothing torn is readable, and losses are counted."""

from __future__ import annotations

import errno
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Failure, failing_calls, run_campaign
from tests.store.writing.failing_writer import LONG, RECORDS
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.testing.runs import start_run
from vinedresser.testing.writing import known_records

SCENARIO = "tests.store.writing.failing_writer:write"
LONG_SCENARIO = "tests.store.writing.failing_writer:write_long"
NAMES_SCENARIO = "tests.store.writing.failing_writer:write_many_names"
QUICK = [Failure(errno.ENOSPC, onwards=False), Failure(errno.EIO, onwards=True, stride=3)]


def stored_steps(run: Run) -> int:
    """Check all committed values and return the number of committed steps."""
    committed = {int(step) for step in run.steps("train")}
    for record in islice(known_records(0), RECORDS):
        if record.step in committed:
            for name, tensor in record.tensors.items():
                np.testing.assert_array_equal(run.tensor(name).value(record.step), tensor.data)
    return len(committed)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY_ERROR, marks=pytest.mark.slow)], ids=["quick", "all"]
)
def test_losses_are_counted_whatever_call_fails(tmp_path: Path, failures: list[Failure]) -> None:
    whole = 0
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures):
        assert case.code == 0, case
        # The launcher has written run.json.
        start_run(case.folder)
        run = open_run(case.folder)
        stored = stored_steps(run)
        assert run.problems == [], case
        assert stored + case.result["dropped"] == RECORDS, case
        assert stored == RECORDS or case.result["problems"], case
        whole += not case.call
    assert whole == len(failures)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_losses_are_counted_whatever_allocation_fails(tmp_path: Path) -> None:
    failures = [Failure(errno.ENOMEM, False, 12), Failure(errno.ENOMEM, True, 40)]
    assert check_allocations(tmp_path, LONG_SCENARIO, failures)


@pytest.mark.thorough
def test_a_committed_record_is_not_lost_whatever_allocation_fails(tmp_path: Path) -> None:
    check_allocations(tmp_path, NAMES_SCENARIO, [Failure(errno.ENOMEM, False)])


def check_allocations(folder: Path, scenario: str, failures: list[Failure]) -> int:
    """Check a scenario; return in how many cases a record was lost."""
    library = failing_calls(folder)
    lost = 0
    for case in run_campaign(scenario, library, folder, failures, limit=300.0):
        assert case.code == 0, case
        start_run(case.folder)
        run = open_run(case.folder)
        losses = run.scalars(LONG).get(LONG)
        stored = [] if losses is None else losses.steps.tolist()
        assert losses is None or losses.values.tolist() == [float(step) for step in stored], case
        assert run.problems == [], case
        assert len(stored) + case.result["dropped"] == RECORDS, case
        assert len(stored) == RECORDS or case.result["problems"], case
        lost += len(stored) < RECORDS
    return lost
