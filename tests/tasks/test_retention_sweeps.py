"""A sweep is removed with all of its trials or stays with them, wherever its removal is killed."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.cli.command_line import vinedresser
from tests.tasks.test_retention import DAY, ended_run
from vinedresser import open_run, open_store
from vinedresser.errors import ConfigError, StillRunning
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import local_state, private_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import create_run, prepare_tracking
from vinedresser.objects import LocalStorage, Location, StoreUrl, open_storage
from vinedresser.objects.s3 import S3Storage
from vinedresser.store.records import TrackingRecord, write_record
from vinedresser.store.spool import make_spool
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.config.retention_file import Policy
from vinedresser.tasks.parents.ending import settle_parent
from vinedresser.tasks.parents.kinds import parents_in
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.retention import candidates, clean, named, remove, remove_named
from vinedresser.tasks.retention_reasons import pin, unpin
from vinedresser.tasks.transfer import copy_run


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Return MLflow's URI, an experiment and the run of a sweep."""
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path_factory.mktemp("mlflow"))
    experiment = prepare_tracking(uri, "searches")
    return uri, experiment, create_run(uri, experiment, "search", {}, {})


def make_sweep(
    store: Location,
    tracking: tuple[str, str, str],
    *,
    name: str = "search",
    days: float = 3.0,
    **fields: Any,
) -> Location:
    """Make a sweep of three trials that has ended some days ago."""
    place, (uri, experiment, run) = store / name, tracking
    remember_tracking(place, uri)
    state = local_state(place)
    end = {"status": "FINISHED", "tags": {}, "time": time.time() - days * DAY}
    given: dict[str, Any] = {"run_id": run, "id": "5" * 8, "end": end, "settled": True}
    record = SweepRecord(
        name=name,
        created=time.time() - 9 * DAY,
        tracking_uri=uri,
        experiment_id=experiment,
        space={},
        command=["true"],
        parameters={},
        objectives=[],
        epochs=None,
        **(given | fields),
    )
    write_record(LocalStorage(state), record)
    for key in ("journal.log", "sweep.html", "flows/0"):
        LocalStorage(state).put(key, [b"{}"])
    for number in range(3):
        ended_run(place / f"trial-000{number}", days=days, flow="f")
    return place


@pytest.fixture
def store(tmp_path: Path, tracking: tuple[str, str, str]) -> Path:
    """Return a store with a run that has ended yesterday, and a sweep that has ended before."""
    ended_run(tmp_path / "runs" / "run-1", days=1.0)
    make_sweep(tmp_path / "runs", tracking)
    return tmp_path / "runs"


def test_a_sweep_goes_with_its_trials_and_mlflow_is_told(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    [found] = candidates(store, Policy(older=2 * DAY))
    assert (found.name, found.state, found.kept) == ("search (sweep)", "finished", "")
    files = [one for one in (store / "search").rglob("*") if one.is_file()]
    assert found.bytes == sum(one.stat().st_size for one in files)
    assert clean(store, Policy(older=2 * DAY), delete=False).text.startswith("1 sweep, ")
    assert (store / "search/sweep.json").exists()
    assert clean(store, Policy(older=2 * DAY), delete=True).failed == {}
    assert os.listdir(store) == ["run-1"]
    assert "removed" in MlflowClient(tracking[0]).get_run(tracking[2]).data.tags


@pytest.mark.parametrize("policy", [Policy(older=4 * DAY), Policy(keep=2), Policy(states=["dead"])])
def test_a_sweep_that_the_policy_is_not_about_stays(store: Path, policy: Policy) -> None:
    assert clean(store, policy, delete=True).candidates == []
    assert len(open_store(store / "search")) == 3


def test_a_sweep_counts_as_one_of_the_newest(store: Path) -> None:
    found = candidates(store, Policy(keep=1))
    assert [one.name for one in found] == ["search (sweep)"]


def test_what_is_needed_of_a_sweep_keeps_all_of_it(store: Path) -> None:
    def kept() -> str:
        [found] = candidates(store, Policy(older=2 * DAY))
        return found.kept

    trial = store / "search/trial-0001"
    pin(trial, "the paper")
    assert kept().startswith("trial-0001: pinned by ")
    with pytest.raises(ConfigError, match="search: stays: trial-0001: pinned by"):
        remove(named(store / "search"), "runs")
    unpin(trial)
    pin(store / "search", "")
    assert kept().startswith("pinned by ")
    unpin(store / "search")
    (trial / "exit.json").rename(store / "exit.json")
    assert kept() == "trial-0001: it has not ended"
    (store / "exit.json").rename(trial / "exit.json")
    for name in ("journal.log", "flows/0"):
        with (store / "search" / name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert kept() == "a process runs it"
    assert kept() == ""


def test_a_pinned_sweep_keeps_the_checkpoints_of_its_trials(store: Path) -> None:
    place = store / "search"
    LocalStorage(place / "trial-0001").put("checkpoints/step-4.pt", [bytes(1000)])
    policy = Policy("checkpoints", older=2 * DAY)
    begun = candidates(place, policy)[1]
    pin(place, "the paper")
    assert all(one.kept.startswith("its sweep is pinned") for one in candidates(place, policy))
    with pytest.raises(ConfigError, match=r"stays: its sweep is pinned by .*: the paper"):
        remove(begun, "checkpoints")
    unpin(place)
    assert clean(place, policy, delete=True).text.startswith("3 runs")
    assert not (place / "trial-0001/checkpoints").exists()


def test_a_sweep_that_has_not_ended_keeps_the_checkpoints_of_its_trials(
    tmp_path: Path, tracking: tuple[str, str, str]
) -> None:
    place = make_sweep(tmp_path, tracking, end={})
    found = candidates(place, Policy("checkpoints", older=2 * DAY))
    assert {one.kept for one in found} == {
        "its sweep has not ended, or nothing has recorded its end"
    }


@pytest.mark.parametrize("inner", ["mine", "trial-0007", "others/run-1", "others/search/trial-0"])
def test_a_sweep_whose_folder_holds_runs_of_others_stays(store: Path, inner: str) -> None:
    place = store / "search"
    ended_run(place / inner, days=9.0)
    if "search" in inner:
        shutil.copy(place / "sweep.json", place / "others/search")
    name = inner.partition("/")[0]
    run = "a run that is none of" if "/" not in inner else "holds runs that are none of"
    [found] = candidates(store, Policy(older=2 * DAY))
    assert found.kept == f"{name}: {run} this sweep's"
    with pytest.raises(ConfigError, match="none of this sweep's"):
        remove_named(place)
    assert (place / inner / "run.json").exists()


def test_a_trial_of_another_sweep_keeps_a_sweep(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    uri, experiment, run = tracking
    trial = LocalStorage(store / "search/trial-0001")
    write_record(trial, TrackingRecord(uri, experiment, run, parent=run, settled=True))
    assert named(store / "search").kept == ""
    write_record(trial, TrackingRecord(uri, experiment, run, parent="0" * 32, settled=True))
    assert named(store / "search").kept == "trial-0001: a run that is none of this sweep's"


def test_a_run_of_others_in_the_folder_of_a_copy_keeps_it(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    uri, experiment, run = tracking
    place = copy_run(store / "search", store.parent / "other")
    remember_tracking(place, uri)
    ended_run(place / "mine", days=9.0, flow="f")
    write_record(open_storage(place / "mine"), TrackingRecord(uri, experiment, run, settled=True))
    assert named(place).kept == "mine: a run that is none of this sweep's"


def test_a_sweep_that_another_one_starts_from_stays(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    make_sweep(store, tracking, name="second", id="6" * 8, warm_start="5" * 8)
    reason = "second starts from it (warm_start)"
    assert named(store / "search").kept == reason
    found = clean(store, Policy(older=2 * DAY), delete=True)
    assert {one.name: one.kept for one in found.candidates} == {
        "search (sweep)": reason,
        "second (sweep)": "",
    }
    # Nothing starts from it any more.
    assert clean(store, Policy(older=2 * DAY), delete=True).text.startswith("1 sweep, ")
    assert parents_in(store) == []


def test_a_sweep_with_a_run_that_others_name_as_their_reference_stays(
    store: Path, tracking: tuple[str, str, str]
) -> None:
    good = open_run(store / "search/trial-0002").info.id
    second = make_sweep(store, tracking, name="second", id="6" * 8)
    assert isinstance(second, Path)
    record = json.loads((second / "trial-0000/run.json").read_text())
    (second / "trial-0000/run.json").write_text(json.dumps(record | {"named_references": [good]}))
    assert named(store / "search").kept == "second is compared with it (reference)"
    assert named(second).kept == ""
    # It was resumed without a reference, and its first trial cannot be read.
    (second / "trial-0000/run.json").rename(second / "trial-0001/run.json")
    (second / "trial-0000/run.json").write_text("{")
    assert named(store / "search").kept == "second is compared with it (reference)"


def test_a_removal_is_completed_later_while_mlflow_is_away(tmp_path: Path) -> None:
    make_sweep(tmp_path, ("sqlite:////nowhere/mlflow.db", "1", "f" * 32))
    notes = LocalStorage(private_state(tmp_path))
    note = {"name": "search", "id": "5" * 8, "word": "sweep"}
    notes.put("removing/5.json", [json.dumps(note).encode()])
    failed = clean(tmp_path, Policy(older=9 * DAY), delete=True).failed
    assert "cannot be completed: " in failed[tmp_path / "search"]
    assert notes.list("removing/") == ["removing/5.json"]


def test_a_killed_sweep_is_as_old_as_the_notice_of_its_end(
    tmp_path: Path, tracking: tuple[str, str, str]
) -> None:
    place = make_sweep(tmp_path, tracking, end={}, settled=False)
    assert settle_parent(place, SweepRecord).startswith("killed")
    assert named(place).kept == ""
    assert named(place).state == "killed"
    assert candidates(tmp_path, Policy(older=1 * DAY)) == []


@pytest.mark.parametrize("time", ['"soon"', "NaN", "1e300"])
def test_a_sweep_whose_end_is_no_time_stays(store: Path, time: str) -> None:
    path = store / "search/sweep.json"
    path.write_text(re.sub(r'"time": [\d.]+', f'"time": {time}', path.read_text()))
    found = {one.name: one.kept for one in candidates(store, Policy(older=1.0))}
    assert "sweep.json: not a valid SweepRecord" in found["search (sweep)"]
    assert found["run-1"] == ""


def test_a_removal_that_the_system_refuses_changes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr("vinedresser.tasks.retention.os.rename", refuse)
        found = clean(store, Policy(older=2 * DAY), delete=True)
    assert found.failed == {
        store / "search": f"{store / 'search'}: not removed: Operation not permitted"
    }
    # The next one is about something else.
    assert clean(store, Policy(keep=9), delete=True).completed == []
    assert len(open_store(store / "search")) == 3


def test_nothing_is_open_in_a_folder_that_is_deleted(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS keeps the folder of an open file."""
    delete = shutil.rmtree

    def look(folder: Path) -> None:
        opened = [os.path.realpath(one.path) for one in os.scandir("/proc/self/fd")]
        assert not [one for one in opened if one.startswith(str(store))]
        delete(folder)

    monkeypatch.setattr("vinedresser.tasks.retention.shutil.rmtree", look)
    remove_named(store / "search")
    assert os.listdir(store) == ["run-1"]


def test_a_sweep_that_is_joined_while_it_is_removed_stays(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename
    joined = (store / "search/flows/0").open("rb")

    def join(before: Path, after: Path) -> None:
        fcntl.flock(joined, fcntl.LOCK_EX)
        rename(before, after)

    with joined, monkeypatch.context() as patch:
        patch.setattr("vinedresser.tasks.retention.os.rename", join)
        with pytest.raises(StillRunning, match="stays: a process has joined this sweep"):
            remove_named(store / "search")
    assert clean(store, Policy(keep=9), delete=True).completed == []
    assert len(open_store(store / "search")) == 3


def test_rm_and_gc_do_not_remove_at_once(store: Path) -> None:
    lock = private_state(store) / "removing.lock"
    with process_lock(lock, "removal"), pytest.raises(StillRunning, match="runs this removal"):
        remove_named(store / "search")
    # As another rm does.
    with process_lock(lock, "removal", shared=True):
        with pytest.raises(StillRunning, match="runs this removal"):
            clean(store, Policy(keep=9), delete=True)
        remove_named(store / "search")
    assert os.listdir(store) == ["run-1"]


@pytest.mark.parametrize("name", ["run-2/run.json", "notes.txt"])
def test_what_took_the_place_of_a_removed_sweep_stays(store: Path, name: str) -> None:
    left = store / ".tmp-removed-search"
    (store / "search").rename(left)
    note = {"name": "search", "id": "5" * 8, "word": "sweep"}
    LocalStorage(private_state(store)).put("removing/5.json", [json.dumps(note).encode()])
    LocalStorage(store / "search").put(name, [b"{}"])
    assert clean(store, Policy(keep=9), delete=True).completed == [store / "search"]
    assert not left.exists()
    assert (store / "search" / name).exists()


@pytest.mark.parametrize("fields", [{"settled": False}, {"end": {}}])
def test_a_sweep_whose_end_mlflow_does_not_know_stays(
    tmp_path: Path, tracking: tuple[str, str, str], fields: dict[str, Any]
) -> None:
    place = make_sweep(tmp_path, tracking, **fields)
    assert named(place).kept == "MLflow does not know its end: vinedresser reconcile"


def test_a_sweep_that_begins_again_meanwhile_stays(store: Path) -> None:
    found = named(store / "search")
    with (store / "search/journal.log").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StillRunning, match="another process runs this sweep"):
            remove(found, "runs")
    with (store / "search/flows/0").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="stays: a process runs it"):
            remove(found, "runs")
    assert len(open_store(store / "search")) == 3


def remove_up_to(place: Path, changes: int) -> None:
    """Remove a sweep; be killed before a change of a file or folder, counted from 0."""
    candidate = named(place)
    left = changes

    def count(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("os.remove", "os.rename", "os.rmdir", "shutil.rmtree"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    remove(candidate, "runs")


@pytest.mark.thorough
def test_a_sweep_is_whole_or_gone_wherever_its_removal_is_killed(
    tmp_path: Path, tracking: tuple[str, str, str]
) -> None:
    changes, code = 0, -signal.SIGKILL
    while code:
        store = tmp_path / f"store-{changes}"
        place = make_sweep(store, tracking)
        process = multiprocessing.get_context("fork").Process(
            target=remove_up_to, args=(place, changes)
        )
        process.start()
        process.join()
        code = process.exitcode or 0
        if parents_in(store):
            assert len(open_store(place)) == 3
            assert open_run(place / "trial-0002").steps("train").tolist() == [0]
        else:
            assert "search" not in os.listdir(store)
        begun = LocalStorage(private_state(store)).list("removing/")
        clean(store, Policy(keep=9), delete=True)
        assert os.listdir(store) == ([] if begun or not code else ["search"])
        assert begun or not code or not changes
        changes += 1 if changes < 8 else 9
    assert changes > 30


def test_a_folder_that_is_being_removed_is_no_sweep(store: Path) -> None:
    (store / "search").rename(store / ".tmp-removed-search")
    assert parents_in(store) == []


def test_the_command_names_it_and_rm_removes_it(store: Path) -> None:
    run = partial(vinedresser, cwd=store.parent)
    listed = run("gc", "--older", "2 d").stdout
    assert "search (sweep)" in listed
    assert "1 sweep, 0.0 MB; --delete removes them" in listed
    refused = run("gc", "runs/search", "--older", "2 d")
    assert (refused.returncode, "vinedresser rm runs/search" in refused.stderr) == (2, True)
    assert run("pin", "runs/search").stdout == "search   pinned\n"
    assert run("rm", "runs/search").returncode == 1
    assert run("pin", "runs/search", "--remove").returncode == 0
    assert run("rm", "runs/search").stdout == "search   removed\n"
    assert os.listdir(store) == ["run-1"]


@pytest.mark.thorough
def test_a_sweep_on_an_object_store_is_removed_with_its_state(
    s3: str, tracking: tuple[str, str, str]
) -> None:
    place = make_sweep(StoreUrl(s3), tracking)
    ended_run(StoreUrl(f"{s3}/run-1"), days=1.0)
    found = clean(StoreUrl(s3), Policy(older=2 * DAY), delete=True)
    assert [one.name for one in found.candidates] == ["search (sweep)"]
    assert {key.partition("/")[0] for key in open_storage(StoreUrl(s3)).list("")} == {"run-1"}
    assert not local_state(place).exists()


class Killed(BaseException):
    """Ends a removal like a kill."""


@pytest.mark.thorough
@pytest.mark.parametrize("deleted", [0, 1, 4, 10**6])
def test_an_interrupted_removal_on_an_object_store_leaves_no_journal(
    s3: str, tracking: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    place = make_sweep(StoreUrl(s3), tracking)
    left = deleted

    def count(self: S3Storage, key: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        delete(self, key)

    def kill(*_: object) -> None:
        raise Killed

    delete = S3Storage.delete
    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "delete", count)
        # After the last object.
        patch.setattr("vinedresser.tasks.retention.os.rename", kill)
        with pytest.raises(Killed):
            remove_named(place)
    assert parents_in(StoreUrl(s3)) == []
    assert clean(StoreUrl(s3), Policy(keep=9), delete=True).completed == [place]
    assert open_storage(StoreUrl(s3)).list("") == []
    # A new sweep of this name would continue its journal.
    assert not local_state(place).exists()


@pytest.mark.thorough
def test_a_sweep_of_which_a_run_is_not_uploaded_stays(
    s3: str, tracking: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path / "spool"))
    place = make_sweep(StoreUrl(s3), tracking)
    folder, lock = make_spool(f"{place}/trial-0003", "a")
    os.close(lock)
    assert named(place).kept == "its data is not uploaded yet"
    shutil.rmtree(folder)
    assert named(place).kept == ""
