"""The n-th system call of a relay fails: readers see nothing torn, and all data arrives later."""

from __future__ import annotations

import errno
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Case, Failure, failing_calls, run_campaign
from tests.infra.supervise.relay.failing_relay import CHECKPOINT, RECORDS, places
from vinedresser.errors import NotARun
from vinedresser.infra.supervise.relay.relay import Relay
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.spool import read_target
from vinedresser.testing.writing import known_records

# A relay tries without end; then it is killed.
LIMIT = 1.5
QUICK = [Failure(errno.EIO, onwards=False, stride=9)]


def stored_steps(run: Run) -> int:
    """Check all values in the store and return the number of its steps."""
    assert run.problems == []
    committed = {int(step) for step in run.steps("train")}
    for record in islice(known_records(0), RECORDS):
        if record.step in committed:
            for name, tensor in record.tensors.items():
                np.testing.assert_array_equal(run.tensor(name).value(record.step), tensor.data)
    return len(committed)


def check_whole(store: Path) -> None:
    """Check that the store has all of the run."""
    run = open_run(store)
    assert stored_steps(run) == RECORDS
    assert run.status.state == "finished"
    assert LocalStorage(store).get("checkpoints/last.npz") == CHECKPOINT


def upload(spool: Path) -> None:
    """Upload what is left of a spool, like `reconcile`."""
    target = read_target(spool)
    assert target is not None
    relay = Relay(spool, target, open_storage(target.url), lambda sentence: None)
    relay.claim()
    relay.run()


def check(case: Case, spool: Path, store: Path) -> None:
    """Check what readers see after the failure, and that the rest arrives later."""
    assert "Traceback" not in case.stderr, case
    if case.result == 0:
        check_whole(store)
        return
    # It says why, to the training and to the log of the spool, unless it is killed first.
    assert case.result is None or '"error"' in case.stderr or '"say"' in case.stderr, case
    try:
        run = open_run(store)
        assert stored_steps(run) <= RECORDS
        # The end of the run says that all of it is there.
        if run.status.state == "finished":
            check_whole(store)
    except NotARun:
        pass
    upload(spool)
    check_whole(store)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "failures", [QUICK, pytest.param(EVERY_ERROR, marks=pytest.mark.slow)], ids=["quick", "all"]
)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("scenario", ["relay_from", "relay_to"])
def test_nothing_is_lost_whatever_call_fails(
    tmp_path: Path, scenario: str, failures: list[Failure]
) -> None:
    whole = 0
    called = f"tests.infra.supervise.relay.failing_relay:{scenario}"
    library = failing_calls(tmp_path)
    for case in run_campaign(called, library, tmp_path, failures, limit=LIMIT):
        check(case, *places(scenario, case.folder))
        if not case.call:
            assert case.result == 0, case
            whole += 1
    assert whole == len(failures)
