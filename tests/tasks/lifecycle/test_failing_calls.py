"""The n-th system call of a flow's recorder fails: `reconcile` completes what MLflow has."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.failing_calls.campaign import EVERY_ERROR, Case, Failure, failing_calls, run_campaign
from tests.tasks.lifecycle.failing_recorder import DATABASE, LOSSES, RUN
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import TrackingRecord, read_record
from vinedresser.tasks.reconcile.reconcile import reconcile

SCENARIO = "tests.tasks.lifecycle.failing_recorder:record"
# MLflow gets a minute to be available again.
LIMIT = 3.0
# If all later calls fail, each case takes as long as that.
ALL = [failure._replace(stride=7 if failure.onwards else 1) for failure in EVERY_ERROR]
SOME = [Failure(errno.EIO, onwards=False, stride=23), Failure(errno.ENOSPC, True, stride=67)]


def recorded(store: Path) -> tuple[list[str], list[tuple[int, float]], bool]:
    """Return the statuses of all MLflow runs, all metrics, and whether the report is there."""
    with closing(sqlite3.connect(store / DATABASE)) as database:
        statuses = [status for (status,) in database.execute("SELECT status FROM runs")]
        metrics = database.execute("SELECT step, value FROM metrics ORDER BY step").fetchall()
    reports = list((store / "mlartifacts").glob("*/artifacts/report.html"))
    return statuses, metrics, len(reports) == 1


def check(case: Case) -> None:
    """Check that the run is unharmed, and complete in MLflow once it has been reconciled."""
    assert "Traceback" not in case.stderr, case
    store, whole = case.folder, (["FINISHED"], list(enumerate(LOSSES)), True)
    if case.result == "":
        assert recorded(store) == whole, case
    # Without a result it was killed while it waited, like a flow.
    repairs = reconcile(store, prefect=False)
    assert not any(repair.failed for repair in repairs), (repairs, case)
    assert recorded(store) == whole, case
    run = open_run(store / RUN)
    assert run.scalars()["losses/loss"].values.tolist() == list(LOSSES), case
    tracking = read_record(LocalStorage(store / RUN), TrackingRecord)
    assert tracking is not None, case
    assert tracking.settled, case
    assert reconcile(store, prefect=False) == [], case


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "failures", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_mlflow_gets_all_of_a_run_whatever_call_fails(
    tmp_path: Path, mlflow_template: Path, failures: list[Failure]
) -> None:
    shutil.copyfile(mlflow_template, tmp_path / DATABASE)
    whole = 0
    for case in run_campaign(SCENARIO, failing_calls(tmp_path), tmp_path, failures, limit=LIMIT):
        check(case)
        if not case.call:
            assert case.result == "", case
            whole += 1
    assert whole == len(failures)
