"""Reconciling a store that came from somewhere else obeys nothing that is written in it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from vinedresser.errors import UntrustedTracking
from vinedresser.infra.catalog.known_tracking import read_tracking, remember_tracking, tracking
from vinedresser.infra.catalog.stores import private_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.finding import Finding
from vinedresser.store.records import (
    TrackingRecord,
    findings_key,
    tags_key,
    write_record,
)
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.reconcile.reconcile import Reconciled, reconcile
from vinedresser.testing.runs import end_run, make_run, step_record


def test_a_note_of_a_flow_in_a_store_ends_no_process(tmp_path: Path) -> None:
    gone = replace(this_process(), started=0)
    note = {"id": "0", "name": "a", "marker": "m", "process": asdict(gone)}
    for folder in (".vinedresser/flows", "flows"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.json").write_text(json.dumps(note))
    environment = {**os.environ, "VINEDRESSER_FLOW": "m"}
    with subprocess.Popen(["sleep", "600"], env=environment) as bystander:
        assert reconcile(tmp_path) == []
        assert bystander.poll() is None
        bystander.kill()


def test_the_state_of_a_store_is_outside_it_and_private(tmp_path: Path) -> None:
    folder = private_state(tmp_path)
    assert not folder.is_relative_to(tmp_path.resolve())
    assert {one.stat().st_mode & 0o777 for one in (folder, folder.parent.parent)} == {0o700}
    (tmp_path / "inner").mkdir()
    assert private_state(tmp_path / "inner" / "..") == folder
    assert private_state(tmp_path / "inner") != folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """Return the tracking URI of a database of this user that has nothing to do with MLflow."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE accounts (id INTEGER)")
    return f"sqlite:///{tmp_path / 'other.db'}"


def left_run(directory: Path, uri: str, experiment: str = "0") -> None:
    """Make a run that is over and whose end MLflow does not know."""
    make_run(directory, [step_record(0, scalars={"losses/loss": 1.0})])
    end_run(directory)
    write_record(LocalStorage(directory), TrackingRecord(uri, experiment, ""))


def test_a_database_that_only_a_record_names_stays_as_it_is(tmp_path: Path, elsewhere: str) -> None:
    left_run(tmp_path / "runs" / "a", elsewhere)
    before = (tmp_path / "other.db").read_bytes()
    files = sorted(tmp_path.rglob("*"))
    (result,) = reconcile(tmp_path / "runs")
    assert (result.what, result.failed) == ("a", False)
    assert result.done.startswith("left alone: ")
    assert f" {elsewhere}," in result.done
    assert f" {tmp_path / 'runs'};" in result.done
    assert f"MLFLOW_TRACKING_URI={elsewhere} " in result.done
    assert (tmp_path / "other.db").read_bytes() == before
    assert sorted(tmp_path.rglob("*")) == files
    with pytest.raises(UntrustedTracking, match="its records name"):
        tracking(tmp_path / "runs")


def test_a_sweep_whose_record_names_a_database_is_left_alone(
    tmp_path: Path, elsewhere: str
) -> None:
    record = SweepRecord(
        name="s",
        space={},
        command=[],
        parameters={},
        objectives=[],
        epochs=None,
        created=1.0,
        tracking_uri=elsewhere,
        experiment_id="0",
        id="x",
    )
    write_record(LocalStorage(tmp_path / "runs"), record)
    before = (tmp_path / "other.db").read_bytes()
    (result,) = reconcile(tmp_path / "runs")
    assert result.what == "sweep runs"
    assert result.done.startswith("left alone: ")
    assert (tmp_path / "other.db").read_bytes() == before


def test_what_this_user_has_used_or_names_counts_but_not_for_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    store = tmp_path / "runs"
    left_run(store / "a", uri, prepare_tracking(uri, "digits"))
    remember_tracking(store, uri)
    shutil.copytree(store, tmp_path / "copy")
    assert "left alone" in reconcile(tmp_path / "copy")[0].done
    assert "left alone" in reconcile(tmp_path / "copy" / "a")[0].done
    assert reconcile(store) == [Reconciled("a", "finished; MLflow brought up to date")]
    assert reconcile(store) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    said = f"finished; MLflow's run is that of {store / 'a'}, of which this is a copy"
    assert reconcile(tmp_path / "copy" / "a") == [Reconciled("a", said)]
    assert reconcile(tmp_path / "copy" / "a") == []


@pytest.mark.thorough
def test_a_copy_does_not_end_the_mlflow_run_of_its_original_but_a_moved_run_does(
    tmp_path: Path,
) -> None:
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    store = tmp_path / "runs"
    experiment = prepare_tracking(uri, "digits")
    left_run(store / "a", uri, experiment)
    remember_tracking(store, uri)

    def statuses() -> list[str]:
        return [run.info.status for run in MlflowClient(uri).search_runs([experiment])]

    shutil.copytree(store / "a", store / "b")
    # As if it had been copied while it trained: its processes seemed to be gone.
    end_run(store / "b", "killed")
    assert "brought up to date" in reconcile(store / "a")[0].done
    (result,) = reconcile(store / "b")
    assert result.done.startswith("killed; MLflow's run is that of ")
    assert statuses() == ["FINISHED"]
    assert reconcile(store) == []
    write_record(LocalStorage(store / "b"), TrackingRecord(uri, experiment, ""))
    shutil.rmtree(store / "a")
    assert reconcile(store) == [Reconciled("b", "killed; MLflow brought up to date")]
    assert statuses() == ["KILLED"]


def test_a_link_in_a_run_is_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    left_run(tmp_path / "runs" / "a", uri, prepare_tracking(uri, "digits"))
    remember_tracking(tmp_path / "runs", uri)
    (tmp_path / "runs" / "a" / "actions").mkdir()
    (tmp_path / "runs" / "a" / "actions" / "x.jsonl").symlink_to(tmp_path / "secret")
    assert reconcile(tmp_path / "runs")
    uploaded = [path for path in (tmp_path / "mlartifacts").rglob("*") if path.is_file()]
    assert "the secret" not in [one.read_text(errors="replace") for one in uploaded]


def test_the_password_of_a_tracking_uri_is_in_no_record(tmp_path: Path) -> None:
    uri = "http://me:pass@127.0.0.1:9"
    make_run(tmp_path / "runs" / "a", [step_record(0, scalars={"losses/loss": 1.0})])
    write_record(LocalStorage(tmp_path / "runs" / "a"), TrackingRecord(uri, "0", ""))
    assert "pass" not in (tmp_path / "runs" / "a" / "tracking.json").read_text()
    remember_tracking(tmp_path / "runs", uri)
    found = read_tracking(tmp_path / "runs" / "a")
    assert found is not None
    assert found.uri == uri


def test_damaged_files_of_the_rules_do_not_keep_a_run_unsettled(tmp_path: Path) -> None:
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    folder = tmp_path / "runs" / "a"
    left_run(folder, uri, prepare_tracking(uri, "digits"))
    remember_tracking(tmp_path / "runs", uri)
    finding = Finding(
        "nonfinite", "stop", 1, 1, "train", 0, "t", "loss", 1.0, 2.0, 0.9, "seen", "cause", "try"
    )
    LocalStorage(folder).put(
        findings_key("default"), [json.dumps(finding.to_json()).encode(), b'\n{"rule": "non\n']
    )
    LocalStorage(folder).put(tags_key("default"), [b"{}"])
    (folder / "actions").mkdir()
    os.mkfifo(folder / "actions" / "default.jsonl")
    assert [one.failed for one in reconcile(tmp_path / "runs")] == [False]
    assert reconcile(tmp_path / "runs") == []
    settled = read_tracking(folder)
    assert settled is not None
    tags = MlflowClient(uri).get_run(settled.run_id).data.tags
    assert tags["findings"] == "nonfinite"
    problems = {line.removeprefix(f"{folder}/")[:45] for line in tags["problems"].splitlines()}
    assert problems == {
        "actions/default.jsonl: a FIFO, not a file",
        "tags/default.json: not a valid TagsRecord: Ta",
        "findings/default.jsonl: line 2 is not a findi",
    }
