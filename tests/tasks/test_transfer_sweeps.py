"""A sweep is copied with its trials or not at all, and a copy is one of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.cli.command_line import vinedresser
from tests.tasks.test_retention_owners import away, made_for
from tests.tasks.test_retention_sweeps import make_sweep
from tests.tasks.test_transfer import COPY
from vinedresser import open_run, open_store
from vinedresser.errors import AlreadyARun, ConfigError, CorruptData, StillRunning, StoreError
from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.catalog.stores import local_state
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking import (
    DIRECTORY_TAG,
    RUN_TAG,
    create_run,
    prepare_tracking,
)
from vinedresser.objects import LocalStorage, Location, StoreUrl, open_storage
from vinedresser.objects.s3 import S3Storage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    EXPERIMENT_KEY,
    Heartbeat,
    TrackingRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.status import run_status
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.config.retention_file import Policy
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.parents.ending import settle_parent
from vinedresser.tasks.parents.kinds import kind_of, parents_in
from vinedresser.tasks.retention import clean, named, remove_named
from vinedresser.tasks.retention_reasons import pin
from vinedresser.tasks.sweeping.sweep_result import begin_sweep
from vinedresser.tasks.transfer import copy_run, export_runs, import_runs

# MLflow is not asked.
TRACKING = ("sqlite:////nowhere/mlflow.db", "1", "f" * 32)
LEFT = ("tracking.json", "pin.json", "supervisor.lock")


def filled(store: Location) -> Location:
    """Return a sweep with what belongs to it, to a trial, to this place alone, and to others."""
    place = make_sweep(store, TRACKING)
    state = LocalStorage(local_state(place))
    for key in ("enqueued/0000.json", "prunings/trial-0001/result.json", "journal.log.turn"):
        state.put(key, [key.encode()])
    trial = open_storage(place / "trial-0001")
    trial.put("checkpoints/step-4.pt", [b"weights"])
    write_record(trial, TrackingRecord(*TRACKING, settled=True))
    return place


@pytest.fixture
def search(tmp_path: Path) -> Path:
    """Return a sweep of three trials that has ended."""
    place = filled(tmp_path / "runs")
    pin(place, "here only")
    LocalStorage(place).put("notes.txt", [b"mine"])
    assert isinstance(place, Path)
    return place


def contents(place: Location) -> dict[str, bytes]:
    """Return what the copy of a sweep has to have, apart from its record."""
    storage = open_storage(place)
    own = ("journal.log", "sweep.html", "enqueued/", "prunings/", "trial-")
    kept = (key for key in storage.list("") if key.startswith(own) and not key.endswith(LEFT))
    return {key: storage.get(key) for key in kept if key != "journal.log.turn"}


def record(place: Location) -> SweepRecord:
    found = read_record(LocalStorage(local_state(place)), SweepRecord)
    assert found is not None
    return found


def test_a_copy_has_all_but_what_is_about_the_original(search: Path, tmp_path: Path) -> None:
    copy = copy_run(search, tmp_path / "other")
    assert parents_in(tmp_path / "other") == [copy]
    assert contents(copy) == contents(search)
    assert {key for key in open_storage(copy).list("") if key not in contents(copy)} == {
        "sweep.json"
    }
    original = record(search)
    assert record(copy) == original.copied()
    assert (record(copy).id, record(copy).end) == (original.id, original.end)
    assert b"sqlite" not in open_storage(copy).get("sweep.json")
    assert os.listdir(tmp_path / "other") == ["search"]
    # Neither MLflow nor the original is asked.
    assert named(copy).kept == ""
    remove_named(copy)
    assert os.listdir(tmp_path / "other") == []
    assert len(open_store(search)) == 3


def test_what_is_there_stays(search: Path, tmp_path: Path) -> None:
    copy_run(search, tmp_path / "other")
    with pytest.raises(AlreadyARun, match="other/search: this sweep is there already"):
        copy_run(search, tmp_path / "other")
    second = make_sweep(tmp_path / "second", TRACKING, id="6" * 8)
    with pytest.raises(AlreadyARun, match="another sweep of this name"):
        copy_run(second, tmp_path / "other")
    shutil.copytree(search / "trial-0000", tmp_path / "third" / "search")
    with pytest.raises(AlreadyARun, match="another run of this name"):
        copy_run(search, tmp_path / "third")
    LocalStorage(tmp_path / "fourth" / "search").put("thesis.tex", [b"mine"])
    with pytest.raises(StoreError, match="has files, but no sweep"):
        copy_run(search, tmp_path / "fourth")
    assert os.listdir(tmp_path / "fourth") == ["search"]


def test_nothing_is_copied_into_a_run_or_a_sweep(search: Path, tmp_path: Path) -> None:
    export_runs([search], tmp_path / "search.zip")
    for place, said in ((search, "the folder of a sweep"), (search / "trial-0000", "a run, not")):
        before = sorted(place.rglob("*"))
        with pytest.raises(ConfigError, match=said):
            copy_run(search, place)
        with pytest.raises(ConfigError, match=said):
            list(import_runs(tmp_path / "search.zip", place))
        assert sorted(place.rglob("*")) == before


def test_what_has_not_ended_is_refused(search: Path, tmp_path: Path) -> None:
    end = (search / "trial-0001/exit.json").read_bytes()
    (search / "trial-0001/exit.json").unlink()
    with pytest.raises(StillRunning, match="trial-0001: it has not ended"):
        copy_run(search, tmp_path / "other")
    (search / "trial-0001/exit.json").write_bytes(end)
    (search / "trial-0009").symlink_to(search / "trial-0000")
    with pytest.raises(ConfigError, match="trial-0009: a link"):
        export_runs([search], tmp_path / "sweep.zip")
    running = make_sweep(tmp_path / "second", TRACKING, end={}, settled=False)
    with pytest.raises(StillRunning, match="this sweep has not ended"):
        copy_run(running, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "sweep.zip").exists()


def test_what_may_be_alive_on_another_machine_is_refused(search: Path, tmp_path: Path) -> None:
    trial = made_for(search / "trial-0001", this_process())
    # NFS may show a heartbeat late, and clocks differ.
    beat = Heartbeat(0, asdict(away(this_process())), 7, time.time() - 90)
    write_record(trial, beat, key=heartbeat_key(0))
    assert run_status(trial).state == "dead"
    for place in (search, search / "trial-0001"):
        with pytest.raises(StillRunning, match="trial-0001: nothing has recorded its end, and"):
            copy_run(place, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_link_in_the_place_of_what_arrives_is_not_followed(search: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").mkdir()
    for name, given in ((".tmp-arriving-search", search), ("trial-0000", search / "trial-0000")):
        (tmp_path / "other" / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match=f"{name}: a link"):
            copy_run(given, tmp_path / "other")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_run_is_one_whatever_its_training_has_written(search: Path, tmp_path: Path) -> None:
    open_storage(search / "trial-0000").put("sweep.json", [b"{}"])
    copy = copy_run(search / "trial-0000", tmp_path / "other")
    assert open_storage(copy).get("sweep.json") == b"{}"
    assert parents_in(tmp_path / "other") == []


def test_a_sweep_that_begins_again_meanwhile_is_not_copied(
    search: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = LocalStorage.put

    def begin(self: LocalStorage, key: str, *given: object, **named: bool) -> None:
        if key == "trial-0002/run.json":
            path = search / "sweep.json"
            path.write_text(path.read_text().replace("FINISHED", "KILLED"))
        put(self, key, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStorage, "put", begin)
    with pytest.raises(StillRunning, match="began again while it was copied"):
        copy_run(search, tmp_path / "other")
    assert list(open_store(tmp_path / "other")) == []
    assert parents_in(tmp_path / "other") == []


@pytest.mark.parametrize("name", ["journal.log", "exit.json", "run.json", "sweep.json", "search"])
@pytest.mark.parametrize("kind", ["copy", "import"])
def test_a_killed_copy_is_nothing_and_may_be_repeated(
    search: Path, tmp_path: Path, kind: str, name: str
) -> None:
    other = tmp_path / "other"
    export_runs([search], tmp_path / "search.zip")
    source = search if kind == "copy" else tmp_path / "search.zip"
    command = [sys.executable, "-c", COPY, str(source), str(other), name]
    assert subprocess.run(command, check=False).returncode == -9
    assert not (other / "search").exists()
    assert parents_in(other) == []
    assert list(open_store(other)) == []
    if kind == "copy":
        copy_run(search, other)
    else:
        assert [*import_runs(source, other)] == [(other / "search", True)]
    assert os.listdir(other) == ["search"]
    assert contents(other / "search") == contents(search)


def test_an_archive_holds_a_sweep_and_other_programs_check_it(search: Path, tmp_path: Path) -> None:
    archive = tmp_path / "search.zip"
    assert export_runs([search], archive).runs == 3
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "out")
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=tmp_path / "out", check=True)
    [(copy, new)] = import_runs(archive, tmp_path / "other")
    assert (new, contents(copy)) == (True, contents(search))
    assert record(copy) == record(search).copied()
    assert [*import_runs(archive, tmp_path / "other")] == [(copy, False)]
    for done in (
        vinedresser("copy", str(search), "--to", "third", cwd=tmp_path),
        vinedresser("import", str(archive), "fourth", cwd=tmp_path),
    ):
        assert (done.returncode, done.stdout.rpartition("/")[2]) == (0, "search\n")
    exported = vinedresser("export", str(search), "--to", "second.zip", cwd=tmp_path)
    assert exported.stdout.startswith("second.zip   3 runs, ")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("flows/0", "search/flows: there is no run.json"),
        ("trial-0007/log.txt", "search/trial-0007: there is no run.json"),
        ("notes.txt", "search/notes.txt: there is no run.json"),
        ("trial-0001/../../evil", "a key must be a relative name"),
        (".hidden/run.json", "not a valid directory name"),
    ],
)
def test_what_belongs_to_no_run_of_an_archived_sweep_is_refused(
    search: Path, tmp_path: Path, key: str, said: str
) -> None:
    export_runs([search], tmp_path / "search.zip")
    with zipfile.ZipFile(tmp_path / "search.zip") as file:
        files = {name: file.read(name) for name in file.namelist()}
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    files[f"search/{key}"] = b""
    files["SHA256SUMS"] += f"{empty}  search/{key}\n".encode()
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    with pytest.raises(CorruptData, match=said):
        list(import_runs(tmp_path / "evil.zip", tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.thorough
def test_a_sweep_goes_to_an_object_store_and_another_machine_fetches_it(
    search: Path, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = copy_run(search, StoreUrl(s3))
    assert contents(remote) == contents(search)
    # This machine knows it as any sweep there.
    assert parents_in(StoreUrl(s3)) == [remote]
    assert record(remote) == record(search).copied()
    with pytest.raises(AlreadyARun, match="this sweep is there already"):
        copy_run(search, StoreUrl(s3))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        assert kind_of(remote) is None
        with pytest.raises(AlreadyARun, match="this sweep is there already"):
            copy_run(search, StoreUrl(s3))
        with pytest.raises(ConfigError, match="the folder of a sweep"):
            copy_run(search / "trial-0000", remote)
        with pytest.raises(ConfigError, match="belong to a sweep"):
            clean(remote, Policy(older=1.0), delete=True)
        back = copy_run(remote, tmp_path / "back")
        assert (contents(back), record(back)) == (contents(search), record(search).copied())
        assert export_runs([remote], tmp_path / "remote.zip").runs == 3
    remove_named(remote)
    assert open_storage(StoreUrl(s3)).list("") == []


class Killed(BaseException):
    """Ends a copy like a kill."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("objects", "arriving.json"),
        ("objects", "exit.json"),
        ("objects", "run.json"),
        ("objects", "sweep.json"),
        ("state", "sweep.json"),
    ],
)
def test_a_killed_copy_to_an_object_store_is_no_sweep_and_may_be_repeated(
    search: Path, s3: str, monkeypatch: pytest.MonkeyPatch, where: str, name: str
) -> None:
    kind: type[LocalStorage | S3Storage] = S3Storage if where == "objects" else LocalStorage
    put = kind.put

    def kill(self: LocalStorage, key: str, *given: object, **named: bool) -> None:
        if key.endswith(name):
            raise Killed
        put(self, key, *given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", kill)
        with pytest.raises(Killed):
            copy_run(search, StoreUrl(s3))
    assert parents_in(StoreUrl(s3)) == []
    assert not open_storage(StoreUrl(s3)).exists("search/sweep.json") or where == "state"
    remote = copy_run(search, StoreUrl(s3))
    assert contents(remote) == contents(search)
    assert parents_in(StoreUrl(s3)) == [remote]
    assert not open_storage(remote).exists("arriving.json")


SWEEP = """
[sweep]
metric = "accuracy"
sampler = "random"
pruner = "none"
trials = 3

[space]
x = {{ float = [0.0, 1.0] }}

[run]
name = "search"
command = ["true"]
store = "{store}"
"""


@pytest.mark.thorough
def test_a_copy_is_resumed_as_a_sweep_of_its_own_and_one_by_other_programs_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(store: str) -> Path:
        path = tmp_path / f"{store}.toml"
        path.write_text(SWEEP.format(store=store), encoding="utf-8")
        return path

    place = tmp_path / "runs" / "search"
    begin_sweep(load_sweep(written("runs")), resume=False)
    begun = record(place)
    end = {"status": "FINISHED", "tags": {}, "time": time.time()}
    write_record(LocalStorage(place), SweepRecord(**{**begun.__dict__, "end": end}))
    shutil.copytree(tmp_path / "runs", tmp_path / "cp")
    remember_tracking(tmp_path / "cp" / "search", begun.tracking_uri)
    with pytest.raises(ConfigError, match=r"cp/search: a copy of .*runs/search, whose MLflow run"):
        begin_sweep(load_sweep(written("cp")), resume=True)
    copy = copy_run(place, tmp_path / "other")
    put = LocalStorage.put

    def kill(self: LocalStorage, key: str, *given: object, **named: bool) -> None:
        if key == EXPERIMENT_KEY:
            raise Killed
        put(self, key, *given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put", kill)
        with pytest.raises(Killed):
            begin_sweep(load_sweep(written("other")), resume=True)
    begin_sweep(load_sweep(written("other")), resume=True)
    # Killed after it was made, MLflow's run was found again.
    client = MlflowClient(record(copy).tracking_uri)
    assert len(client.search_runs([record(copy).experiment_id])) == 1
    assert record(copy).id != begun.id
    assert record(copy).run_id not in ("", begun.run_id)
    assert record(copy).tracking_uri == begun.tracking_uri.replace("runs/", "other/")
    # One that was moved is the same sweep.
    place.rename(tmp_path / "moved")
    begin_sweep(load_sweep(written("cp")), resume=True)
    assert record(tmp_path / "cp" / "search").run_id == begun.run_id


@pytest.mark.thorough
def test_mlflow_is_not_told_that_the_original_is_gone_when_a_copy_is_removed(
    tmp_path: Path,
) -> None:
    store = tmp_path / "runs"
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    experiment = prepare_tracking(uri, "searches")

    def tracked(place: Path, tag: str) -> str:
        tags = {RUN_TAG: tag, DIRECTORY_TAG: str(place)}
        return create_run(uri, experiment, place.name, {}, tags)

    run_id = tracked(store / "search", "5" * 8)
    make_sweep(store, (uri, experiment, run_id))
    trial = open_run(store / "search/trial-0000")
    made = tracked(store / "search/trial-0000", trial.info.id)
    write_record(trial.storage, TrackingRecord(uri, experiment, made, True, run_id))
    path = store / "search/sweep.json"
    whole = path.read_text()
    path.write_text(whole.replace('"settled": true', '"settled": false'))
    shutil.copytree(store, tmp_path / "cp")
    path.write_text(whole)
    remember_tracking(tmp_path / "cp/search", uri)
    said = settle_parent(tmp_path / "cp/search", SweepRecord)
    assert said.startswith(f"left alone: MLflow's run is that of {store / 'search'}, of which ")
    assert MlflowClient(uri).get_run(run_id).info.status == "RUNNING"
    client = MlflowClient(uri)
    assert clean(tmp_path / "cp", Policy(older=1.0), delete=True).failed == {}
    assert parents_in(tmp_path / "cp") == []
    for one in (run_id, made):
        assert "removed" not in client.get_run(one).data.tags
    # Such as one in a folder of others, which may not be looked at.
    shutil.copytree(store, tmp_path / "again")
    remember_tracking(tmp_path / "again/search", uri)
    client.set_tag(run_id, DIRECTORY_TAG, f"/{'a' * 300}")
    with pytest.raises(StoreError, match="aaa: cannot be looked up: File name too long"):
        remove_named(tmp_path / "again/search")
    client.set_tag(run_id, DIRECTORY_TAG, str(store / "search"))
    remove_named(store / "search")
    for one in (run_id, made):
        assert "removed" in client.get_run(one).data.tags
