"""Damaged records do not keep a run unsettled: MLflow gets what is known, and the damage a name."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.run_notes import note_run
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import Location, StoreUrl, open_storage
from vinedresser.store.records import (
    ExitRecord,
    Heartbeat,
    StopRecord,
    TrackingRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.tasks.lifecycle.mlflow_run import find_or_create
from vinedresser.tasks.reconcile.reconcile import Reconciled, reconcile
from vinedresser.testing.runs import end_run, make_run, step_record

DAMAGE = {"torn": b'{"cause": "fin', "list": b"[1]"}


def tracked_run(location: Location, tmp_path: Path) -> str:
    """Make a run that is over, with an MLflow run that shows it as running; return its URI."""
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    run = make_run(location, [step_record(0, scalars={"losses/loss": 1.0})])
    end_run(location)
    beat = read_record(run.storage, Heartbeat, key=heartbeat_key(0))
    assert beat is not None
    gone = replace(beat, process={**beat.process, "started": 0})
    write_record(run.storage, gone, key=heartbeat_key(0))
    remember_tracking(location.parent, uri)
    tracking = TrackingRecord(uri, prepare_tracking(uri, "digits"), "")
    tracking = TrackingRecord(
        uri, tracking.experiment_id, find_or_create(tracking, location, run.info)
    )
    write_record(run.storage, tracking)
    note_run(location, run.info.id, tracking)
    return uri


def mlflow_run(uri: str) -> MlflowRun:
    """Return the only MLflow run."""
    client = MlflowClient(uri)
    (one,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return one


@pytest.fixture(params=["directory", "object store"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Return the location of a run."""
    if request.param == "directory":
        return tmp_path / "runs" / "a"
    return StoreUrl(request.getfixturevalue("s3")) / "a"


@pytest.mark.thorough
@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_run_with_a_damaged_exit_record_is_settled_as_killed(
    tmp_path: Path, location: Location, content: bytes
) -> None:
    uri = tracked_run(location, tmp_path)
    storage = open_storage(location)
    storage.put(ExitRecord.KEY, [content])
    (result,) = reconcile(location.parent)
    assert not result.failed
    assert result.done.startswith("killed; MLflow brought up to date; ")
    assert f"{location}/exit.json: not a valid ExitRecord" in result.done
    told = mlflow_run(uri)
    assert told.info.status == "KILLED"
    assert "exit.json: not a valid ExitRecord" in told.data.tags["exit.reason"]
    assert "exit.json: not a valid ExitRecord" in told.data.tags["problems"]
    assert len(MlflowClient(uri).get_metric_history(told.info.run_id, "train/loss")) == 1
    assert storage.get(ExitRecord.KEY) == content
    assert reconcile(location.parent) == []


@pytest.mark.thorough
def test_a_run_that_was_stopped_counts_as_stopped_without_its_exit_record(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    uri = tracked_run(folder, tmp_path)
    write_record(open_storage(folder), StopRecord("rule", "nan", time.time(), rule="nonfinite"))
    (folder / ExitRecord.KEY).unlink()
    os.mkfifo(folder / ExitRecord.KEY)
    (result,) = reconcile(folder.parent)
    assert result.done.startswith("stopped")
    assert "exit.json: a FIFO, not a file" in result.done
    told = mlflow_run(uri)
    assert (told.info.status, told.data.tags["stop.rule"]) == ("KILLED", "nonfinite")
    assert reconcile(folder.parent) == []


@pytest.mark.thorough
@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_run_with_a_damaged_tracking_record_is_settled_by_the_note_on_it(
    tmp_path: Path, location: Location, content: bytes
) -> None:
    uri = tracked_run(location, tmp_path)
    storage = open_storage(location)
    storage.put(TrackingRecord.KEY, [content])
    (result,) = reconcile(location.parent)
    assert not result.failed
    assert result.done.startswith("finished; MLflow brought up to date; ")
    assert f"{location}/tracking.json: not a valid TrackingRecord" in result.done
    told = mlflow_run(uri)
    assert told.info.status == "FINISHED"
    assert "tracking.json: not a valid TrackingRecord" in told.data.tags["problems"]
    assert storage.get(TrackingRecord.KEY) == content
    assert reconcile(location.parent) == []


def test_the_note_on_a_run_does_not_settle_a_copy_with_a_damaged_tracking_record(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs" / "a"
    uri = tracked_run(folder, tmp_path)
    folder.rename(folder.with_name("b"))
    (folder.with_name("b") / TrackingRecord.KEY).write_bytes(b"{")
    (result,) = reconcile(folder.with_name("b"))
    assert not result.failed
    assert result.done.startswith("left alone: ")
    assert "tracking.json: not a valid TrackingRecord" in result.done
    assert mlflow_run(uri).info.status == "RUNNING"


@pytest.mark.thorough
def test_a_run_with_a_damaged_launch_record_is_settled(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    uri = tracked_run(folder, tmp_path)
    (folder / "launch.json").write_bytes(b"{")
    assert reconcile(folder.parent) == [Reconciled("a", "finished; MLflow brought up to date")]
    assert mlflow_run(uri).info.status == "FINISHED"
    assert reconcile(folder.parent) == []
