"""Sabotaged installations: each trouble is named, and a sound installation has none."""

from __future__ import annotations

import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import vinedresser
from tests.cli.command_line import vinedresser as command
from vinedresser.infra.catalog.flow_records import FlowRecord, note_flow
from vinedresser.infra.catalog.known_tracking import TRACKING_VARIABLE, remember_tracking
from vinedresser.infra.catalog.run_notes import note_run
from vinedresser.infra.catalog.state_folder import private_folder, state_folder
from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.servers import StandingPrefect, StandingServer
from vinedresser.infra.services.servers.local_server import free_ports
from vinedresser.infra.services.servers.note import opened_note
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import LocalStorage, StoreUrl
from vinedresser.processes import this_process
from vinedresser.store.records import (
    ExitRecord,
    Heartbeat,
    LaunchRecord,
    RunRecord,
    TrackingRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.spool import make_spool
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.health.check import Check
from vinedresser.tasks.health.installation import installation_checks
from vinedresser.tasks.health.machine import machine_checks
from vinedresser.tasks.health.servers import server_checks
from vinedresser.tasks.health.stores import left_checks, store_checks
from vinedresser.tasks.health.tracking import tracking_checks
from vinedresser.tasks.process_lock import process_lock
from vinedresser.testing.runs import end_run, make_run, step_record

SILENT = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
GONE = asdict(replace(this_process(), started=0))


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # But for the empty database of MLflow, which takes long to make.
    tables = state_folder() / "mlflow"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path / "spool"))
    (private_folder(state_folder()) / "mlflow").symlink_to(tables)
    # As importing vinedresser does, before another test changes them.
    for name, silent in SILENT.items():
        monkeypatch.setenv(name, silent)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a run that has ended."""
    store = tmp_path / "runs"
    make_run(store / "ended", [step_record(0, scalars={"losses/loss": 1.0})])
    end_run(store / "ended")
    return store


def troubles(checks: Iterator[Check]) -> dict[str, tuple[str, str]]:
    """Return state and sentence of what is not in order, by subject."""
    return {check.subject: (check.state, check.seen) for check in checks if check.state != "ok"}


def only(checks: Iterator[Check]) -> tuple[str, str]:
    """Return state and sentence of the only thing that is not in order."""
    [found] = troubles(checks).values()
    return found


def problems(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """Return the problems that `vinedresser doctor` printed."""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1, done.stderr
    return [one for one in found if one["state"] == "problem"]


def test_a_sound_installation_has_no_trouble(store: Path) -> None:
    for checks in (
        installation_checks(),
        server_checks(scheduler=False),
        left_checks(),
        store_checks(store),
        tracking_checks(store),
    ):
        assert troubles(checks) == {}


# The packages.


def install(folder: Path, name: str, version: str, *needs: str) -> None:
    """Make the metadata of a package, as pip does."""
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    (place / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_version_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this one Prefect's server does not start.
    install(tmp_path / "site", "fastapi", "0.151.0")
    monkeypatch.syspath_prepend(tmp_path / "site")
    state, seen = only(installation_checks())
    assert state == "problem"
    assert "fastapi<0.151,>=0.139, and 0.151.0 is installed" in seen


def test_what_a_package_needs_and_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "jinja2", "3.1.6", "no-such-thing>=2", 'other; extra == "more"')
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert only(installation_checks()) == (
        "problem",
        "jinja2 needs no-such-thing>=2, which is not installed",
    )


def test_damaged_metadata_of_a_package_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a removal leaves it that was interrupted.
    (tmp_path / "site/~ip-23.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert troubles(installation_checks()) == {}
    install(tmp_path / "site", "jinja2", "3.1.6", "no such ==> requirement")
    assert only(installation_checks())[0] == "unknown"


def test_telemetry_that_is_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "true")
    state, seen = only(installation_checks())
    assert (state, "PREFECT_SERVER_ANALYTICS_ENABLED=true" in seen) == ("warning", True)


# The machine.


def test_a_state_folder_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").mkdir()
    (tmp_path / "file/vinedresser").touch()
    assert troubles(machine_checks())["state"][0] == "problem"


def test_a_password_that_others_may_read_is_named() -> None:
    note = state_folder() / "prefect.json"
    note.write_text("{}", encoding="utf-8")
    note.chmod(0o644)
    state, seen = troubles(machine_checks())["state"]
    assert (state, str(note) in seen) == ("problem", True)


def test_a_state_folder_that_others_may_change_is_named() -> None:
    state_folder().chmod(0o770)
    state, seen = troubles(machine_checks())["state"]
    assert (state, "other users may change it" in seen) == ("problem", True)
    private_folder(state_folder())
    assert "state" not in troubles(machine_checks())


def test_a_place_without_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # A file system without any space.
    monkeypatch.setenv("VINEDRESSER_SPOOL", "/proc/self/spool")
    state, seen = troubles(machine_checks())["uploads"]
    assert state == "problem"
    assert seen.startswith("0.0 GiB free in /proc/self/spool")


def test_a_low_limit_of_open_files_is_named() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        found = troubles(machine_checks())["open files"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == ("warning", "a process may open 512 files, fewer than a sweep needs")


def test_a_clock_that_is_behind_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it had been installed tomorrow.
    installed = tmp_path / "__init__.py"
    installed.touch()
    os.utime(installed, (time.time() + 86400,) * 2)
    monkeypatch.setattr(vinedresser, "__file__", str(installed))
    assert troubles(machine_checks())["clock"][0] == "problem"


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert troubles(machine_checks())["GPUs"][0] == "warning"


# The servers; tests/tasks/health/test_servers.py has real ones.


def test_a_prefect_server_that_was_killed_is_named_and_whoever_has_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with opened_note("prefect") as note:
            note.write(asdict(StandingPrefect(GONE, GONE, url, "/", "user:word", 1)))
        assert only(server_checks(scheduler=False)) == (
            "problem",
            "its process is gone, and something else listens at its port",
        )
    assert only(server_checks(scheduler=False)) == ("problem", "its process is gone")


def test_an_s3_server_that_was_killed_is_named(tmp_path: Path) -> None:
    with opened_note("s3") as note:
        note.write(asdict(StandingServer(GONE, "http://127.0.0.1:1", "runs", str(tmp_path))))
    assert only(server_checks(scheduler=False)) == ("problem", "its process is gone")


def test_a_note_that_is_damaged_is_said_to_be() -> None:
    (state_folder() / "s3.json").write_text('{"process": ', encoding="utf-8")
    assert only(server_checks(scheduler=False))[0] == "unknown"


# Stores.


def test_a_store_that_cannot_be_written_to_is_named() -> None:
    state, seen = troubles(store_checks(Path("/proc/self")))["folder"]
    assert (state, "no file can be made" in seen) == ("problem", True)


FILL = """
mount -t tmpfs -o size=1m tmpfs "$1" &&
    { cat /dev/zero > "$1/data"; exec "$2" -m vinedresser doctor "$1" --json; }
"""


@pytest.mark.thorough
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    # A disk of this process only.
    words = ["unshare", "-rm", "sh", "-c", FILL, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    found = {one["subject"]: one for one in problems(done) if one["area"] == "store"}
    assert "No space left on device" in found["folder"]["seen"]
    assert found["space"]["seen"].startswith("0.0 GiB free")


def test_a_store_that_everybody_may_change_is_named(store: Path) -> None:
    store.chmod(0o777)
    assert only(store_checks(store))[0] == "warning"


def abandon(run: Path) -> None:
    """Let a run have neither a process nor an end."""
    storage = LocalStorage(run)
    storage.delete(ExitRecord.KEY)
    beat = read_record(storage, Heartbeat, key=heartbeat_key(0))
    assert beat is not None
    gone = replace(beat, closed=False, process=GONE)
    write_record(storage, gone, key=heartbeat_key(0))


def test_runs_without_end_are_named_and_not_more_than_three(store: Path) -> None:
    for number in range(5):
        make_run(store / f"dead-{number}", [step_record(0, scalars={"losses/loss": 1.0})])
        abandon(store / f"dead-{number}")
    state, seen = only(store_checks(store))
    assert state == "warning"
    assert seen.startswith("dead-0, dead-1, dead-2 and 2 more: no process runs them")


def test_a_run_of_a_machine_that_may_be_away_is_named_with_it(store: Path) -> None:
    make_run(store / "far", [step_record(0, scalars={"losses/loss": 1.0})])
    abandon(store / "far")
    elsewhere = asdict(replace(this_process(), host="gpu7"))
    storage = LocalStorage(store / "far")
    write_record(storage, LaunchRecord(["true"], str(store), {}, elsewhere))
    beat = Heartbeat(0, elsewhere, 0, time.time() - 3600)
    write_record(storage, beat, key=heartbeat_key(0))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(beat.time))
    [found] = [one for one in store_checks(store) if one.state != "ok"]
    assert found.state == "warning"
    assert found.seen.startswith(f"far: process {os.getpid()} on gpu7, to which it belongs, may ")
    assert f"last sign of life {when}" in found.seen
    assert found.remedy.startswith("vinedresser reconcile on that machine")


@pytest.mark.parametrize("key", [ExitRecord.KEY, RunRecord.KEY])
def test_damaged_records_are_named(store: Path, key: str) -> None:
    (store / "ended" / key).write_text('{"cause": ', encoding="utf-8")
    found = [check.seen for check in store_checks(store) if check.subject == "records"]
    assert any(key in one for one in found)


def test_a_run_of_a_newer_version_is_not_to_be_settled(store: Path) -> None:
    record = json.loads((store / "ended/run.json").read_text(encoding="utf-8"))
    record["format_version"] += 1
    (store / "ended/run.json").write_text(json.dumps(record), encoding="utf-8")
    [found] = [check for check in store_checks(store) if check.state != "ok"]
    assert "a newer version of vinedresser wrote it" in found.seen
    assert found.remedy == "pip install --upgrade vinedresser"


LOCKED = """
import os, sys
from pathlib import Path
from vinedresser.tasks.process_lock import process_lock

with process_lock(Path(sys.argv[1]), "monitor"):
    os.kill(os.getpid(), 9)
"""


def test_a_lock_of_a_killed_process_is_none(store: Path) -> None:
    lock = store / "lock"
    done = subprocess.run([sys.executable, "-c", LOCKED, str(lock)], check=False)
    assert (done.returncode, lock.exists()) == (-9, True)
    assert troubles(store_checks(store)) == {}
    with process_lock(lock, "monitor"):
        pass


def test_what_looks_like_a_run_and_is_none_is_named(store: Path) -> None:
    (store / "half").mkdir()
    (store / "half" / LaunchRecord.KEY).touch()
    (store / ".tmp-0a-1-2-run.json").touch()
    seen = [check.seen for check in store_checks(store) if check.state == "warning"]
    assert len(seen) == 2
    assert "half: no run.json" in seen[0]


def test_an_interrupted_copy_of_a_sweep_is_named(store: Path) -> None:
    (store / ".tmp-arriving-search").mkdir()
    state, seen = only(store_checks(store))
    assert (state, seen) == (
        "warning",
        "search: a copy or import of it runs, or was interrupted",
    )


def test_a_sweep_without_end_is_named(store: Path) -> None:
    sweep = store / "search"
    make_run(sweep / "trial-0", [step_record(0, scalars={"losses/loss": 1.0})])
    end_run(sweep / "trial-0")
    (sweep / SweepRecord.KEY).write_text("{}", encoding="utf-8")
    assert "unknown" in {check.state for check in store_checks(store)}


def test_a_flow_run_whose_process_is_gone_is_named_wherever_one_looks(store: Path) -> None:
    flow = FlowRecord(str(uuid.uuid4()), "brave-crow", "", GONE, "http://x/api", str(store))
    note_flow(store, flow)
    assert only(store_checks(store)) == ("warning", "brave-crow: their process is gone")
    assert str(store) in only(left_checks())[1]


def test_an_upload_that_nothing_does_is_named() -> None:
    folder, lock = make_spool("s3://bucket/run", "token")
    make_run(folder, [step_record(0, scalars={"losses/loss": 1.0})])
    assert troubles(left_checks()) == {}, "its relay has the lock"
    os.close(lock)
    LocalStorage(folder).delete(ExitRecord.KEY)
    assert troubles(left_checks()) == {}, "it is still written"
    abandon(folder)
    assert only(left_checks())[1] == f"of {folder.name}: nothing uploads them"


@pytest.mark.thorough
def test_a_bucket_that_cannot_be_used_is_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert troubles(store_checks(StoreUrl(s3))) == {}
    state, seen = only(store_checks(StoreUrl("s3://no-such-bucket/runs")))
    assert (state, "no-such-bucket" in seen) == ("problem", True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    state, seen = only(store_checks(StoreUrl(f"{s3}/other")))
    assert (state, "SignatureDoesNotMatch" in seen) == ("problem", True)


# MLflow.


@pytest.fixture
def tracked(store: Path, tmp_path: Path) -> Path:
    """Return the database that has a run of the store, which has ended there."""
    uri = absolute_uri("sqlite:///mlflow.db", tmp_path)
    remember_tracking(store, uri)
    experiment = prepare_tracking(uri, "digits")
    record = TrackingRecord(uri, experiment, "0", settled=True)
    write_record(LocalStorage(store / "ended"), record)
    assert troubles(tracking_checks(store)) == {}
    return tmp_path / "mlflow.db"


@pytest.mark.thorough
def test_a_database_that_cannot_be_used_is_named(store: Path, tracked: Path) -> None:
    with closing(sqlite3.connect(tracked, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        state, seen = only(tracking_checks(store))
        assert (state, "locked" in seen) == ("problem", True)
        other.execute("ROLLBACK")
    tracked.write_bytes(b"no database" * 1000)
    state, seen = only(tracking_checks(store))
    assert (state, "not a database" in seen) == ("problem", True)
    tracked.unlink()
    state, seen = only(tracking_checks(store))
    assert (state, "no such file" in seen) == ("problem", True)
    assert not tracked.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["ffffffffffff", "451aebb31d03"], ids=["newer", "older"])
def test_a_database_of_another_version_of_mlflow_is_named(
    store: Path, tracked: Path, version: str
) -> None:
    with closing(sqlite3.connect(tracked, isolation_level=None)) as other:
        other.execute("UPDATE alembic_version SET version_num = ?", [version])
    # In a process that has not used it before.
    [found] = problems(command("doctor", str(store), "--json"))
    assert (found["area"], found["remedy"]) == ("MLflow", "upgrade or repair it as MLflow says")


@pytest.mark.thorough
def test_runs_that_mlflow_shows_as_running_are_named(store: Path, tracked: Path) -> None:
    storage = LocalStorage(store / "ended")
    record = read_record(storage, TrackingRecord)
    assert record is not None
    write_record(storage, replace(record, settled=False))
    note_run(store / "ended", "0", record)
    state, seen = only(tracking_checks(store))
    assert (state, "ended" in seen) == ("warning", True)


def test_a_tracking_uri_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACKING_VARIABLE, "htp://mlflow:5000")
    assert troubles(tracking_checks(None))[TRACKING_VARIABLE][0] == "problem"


@pytest.mark.thorough
def test_a_tracking_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports("127.0.0.1", [0], "nobody")
    monkeypatch.setenv(TRACKING_VARIABLE, f"http://127.0.0.1:{port}")
    assert only(tracking_checks(None))[0] == "problem"


class _Refusing(BaseHTTPRequestHandler):
    """Refuses everybody, as a server with a password does."""

    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.thorough
def test_a_tracking_server_that_refuses_the_password_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        Thread(target=server.serve_forever).start()
        monkeypatch.setenv(TRACKING_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        try:
            [found] = tracking_checks(None)
        finally:
            server.shutdown()
    assert (found.state, "401" in found.seen) == ("problem", True)
    assert found.remedy.startswith("correct MLFLOW_TRACKING_USERNAME")


@pytest.mark.thorough
def test_a_prefect_server_of_the_environment_that_is_away_is_named(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports("127.0.0.1", [0], "nobody")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{port}/api")
    [found] = problems(command("doctor", str(store), "--json"))
    assert (found["area"], str(port) in found["subject"]) == ("servers", True)
