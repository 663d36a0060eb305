"""A damaged run is a row that says what is damaged; it hides no other run and blocks nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.known_tracking import remember_tracking, tracking
from vinedresser.infra.catalog.stores import owned_here, owner_is_gone
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.records import LaunchRecord, TrackingRecord, write_record
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.tasks.lifecycle.earlier_runs import adopt_living
from vinedresser.testing.runs import make_run, step_record

Change = Callable[[Path], object]


def text(content: str) -> Change:
    return lambda path: path.write_text(content, encoding="utf-8")


def link(target: str) -> Change:
    return lambda path: path.symlink_to(target)


# The file, what is put in its place, and the end of the row.
DAMAGE: Mapping[str, tuple[str, Change, str]] = {
    "run-fifo": ("run.json", os.mkfifo, "run.json: a FIFO, not a file"),
    "run-folder": ("run.json", Path.mkdir, "run.json: a folder, not a file"),
    "run-link": ("run.json", link("/etc/hosts"), "run.json: a symbolic link, not a file"),
    "run-dangling": ("run.json", link("nowhere"), "run.json: a symbolic link, not a file"),
    "run-text": (
        "run.json",
        text("[]"),
        "run.json: not a valid RunRecord: [] is not a JSON object",
    ),
    "run-time": (
        "run.json",
        text('{"id": "", "name": "", "created": NaN}'),
        "created is nan, which is not a time in seconds since the epoch",
    ),
    "run-remedy": (
        "run.json",
        text(
            '{"id": "", "name": "", "created": 1, "remedy": '
            '{"first": "a", "attempt": 1, "stopped": "a", "finding": {}}}'
        ),
        "run.json: not a valid RunRecord: finding is {}, which names no rule",
    ),
    "run-restart": (
        "run.json",
        text('{"id": "", "name": "", "created": 1, "restart": {"first": "a"}}'),
        "run.json: not a valid RunRecord: ",
    ),
    "exit-fifo": ("exit.json", os.mkfifo, "exit.json: a FIFO, not a file"),
    "exit-time": (
        "exit.json",
        text('{"cause": "finished", "reason": "", "ended": NaN}'),
        "exit.json: not a valid ExitRecord: ended is nan, which is not a time in seconds",
    ),
    "tracking-fifo": ("tracking.json", os.mkfifo, "tracking.json: a FIFO, not a file"),
    "tracking-text": ("tracking.json", text("{}"), "tracking.json: not a valid TrackingRecord"),
    "supervisor": (
        "supervisor.json",
        text('{"supervisor": {"pid": 1}, "trainer": {}, "started": 1}'),
        "supervisor.json: not a valid SupervisorRecord",
    ),
    "heartbeat": ("heartbeat/0.json", os.mkfifo, "heartbeat/0.json: a FIFO, not a file"),
    "heartbeats": ("heartbeat", text(""), "heartbeat: a file, not a folder"),
    "stray-heartbeat": ("heartbeat/0.json~", text("{}"), "heartbeat/0.json~: not the name of a"),
    "findings": ("findings", text(""), "findings: a file, not a folder"),
    "finding": (
        "findings/a.jsonl",
        text("{\n"),
        "findings/a.jsonl: line 1 is not a finding: Expec",
    ),
    "stray-finding": ("findings/a.txt", text(""), "findings/a.txt: not the name of a file of f"),
    "index": ("index", text(""), "index: a file, not a folder; no data of rank 0 can be read"),
    "record": ("index/0/000000000000.json", os.mkfifo, "index/0/000000000000.json: not a file"),
    "segment": (
        "segments/0/000000000000.safetensors",
        link("/dev/zero"),
        "the segment is missing or not a file",
    ),
    "stray": ("index/0/5.json", text("{}"), "index/0/5.json: not the name of an index record"),
}


def damage(path: Path, change: Change) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    change(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    for name in (*DAMAGE, "zz-healthy"):
        record = step_record(0, scalars={"losses/loss": 0.5})
        make_run(store / name, [record], name=name, created=time.time() - 100)
        if name in DAMAGE:
            key, change, _ = DAMAGE[name]
            damage(store / name / key, change)
    return store


@pytest.mark.thorough
def test_status_has_a_row_for_every_run(store: Path) -> None:
    done = vinedresser("status", str(store), cwd=store, columns=400)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert rows.keys() == {*DAMAGE, "zz-healthy"}
    for name, (_, _, said) in DAMAGE.items():
        assert said in rows[name]
        # The path of the run is left out.
        assert str(store) not in rows[name]
        assert ("unreadable" in rows[name]) == name.startswith("run-")
    assert rows["zz-healthy"].split()[:4] == ["zz-healthy", "finished", "1", "0.5"]


@pytest.mark.thorough
def test_reconcile_names_what_it_cannot_settle_and_goes_on(tmp_path: Path) -> None:
    copy = tmp_path / "store"
    for name in ("run-fifo", "tracking-text", "zz-healthy"):
        make_run(copy / name, [step_record(0)], created=time.time() - 100)
    for name in ("run-fifo", "tracking-text"):
        key, change, _ = DAMAGE[name]
        damage(copy / name / key, change)
    # The process of the last run is gone, and nothing recorded its end.
    (copy / "zz-healthy" / "exit.json").unlink()
    beat = copy / "zz-healthy" / "heartbeat" / "0.json"
    document = json.loads(beat.read_text())
    document["process"]["started"] = 0
    beat.write_text(json.dumps(document))
    done = vinedresser("reconcile", str(copy), cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split("   ")[0] for line in lines] == ["run-fifo", "tracking-text", "zz-healthy"]
    assert "run.json: a FIFO, not a file" in lines[0]
    assert "tracking.json: not a valid TrackingRecord" in lines[1]
    assert "killed: the training vanished" in lines[2]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["index", "record", "segment", "stray", "heartbeats", "finding"])
def test_show_names_the_damage(store: Path, name: str) -> None:
    done = vinedresser("show", name, cwd=store)
    assert done.returncode == 0, done.stderr
    assert DAMAGE[name][2] in done.stdout


def test_a_damaged_tracking_record_does_not_hide_the_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name)
    os.mkfifo(tmp_path / "a" / "tracking.json")
    with pytest.raises(ConfigError, match="no run in it is tracked"):
        tracking(tmp_path)
    record = TrackingRecord("http://127.0.0.1:1", "1", "run")
    write_record(LocalStorage(tmp_path / "b"), record)
    remember_tracking(tmp_path, record.uri)
    assert tracking(tmp_path) == record


def test_a_damaged_launch_record_does_not_hide_the_runs_of_this_process(tmp_path: Path) -> None:
    launch = LaunchRecord(["true"], "/", owner=asdict(this_process()))
    for name in ("a", "b", "c"):
        make_run(tmp_path / name)
        write_record(LocalStorage(tmp_path / name), launch)
    damage(tmp_path / "a" / "launch.json", os.mkfifo)
    damage(tmp_path / "b" / "launch.json", text('{"argv": [], "cwd": "/", "owner": {}}'))
    assert owned_here(tmp_path) == [tmp_path / "c"]
    assert adopt_living(tmp_path) == []
    assert not owner_is_gone(tmp_path / "a")


@pytest.mark.thorough
def test_links_to_a_store_and_to_a_run_are_followed(tmp_path: Path) -> None:
    make_run(tmp_path / "real" / "a", name="a")
    (tmp_path / "store").symlink_to("real")
    (tmp_path / "one").symlink_to("real/a")
    # A run has the name that the link gives it, which other commands take.
    listed = vinedresser("status", "store", cwd=tmp_path).stdout.splitlines()[1]
    assert listed.split()[:3] == ["a", "finished", "0"]
    told = vinedresser("status", "one", cwd=tmp_path)
    assert told.stdout.startswith("one   step 0   "), told.stderr


@pytest.mark.thorough
def test_a_copied_heartbeat_is_not_another_rank(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", [step_record(0)])
    beat = tmp_path / "a" / "heartbeat" / "0.json"
    document = json.loads(beat.read_text())
    beat.write_text(json.dumps({**document, "dropped": 3}))
    shutil.copy(beat, beat.with_name("0.json~"))
    done = vinedresser("status", "a", cwd=tmp_path)
    assert "3 records lost (queue or disk full)" in done.stdout
    assert run.status.state == "finished"


@pytest.mark.thorough
def test_status_lists_the_sweeps_of_a_store(tmp_path: Path) -> None:
    record = SweepRecord(
        name="s",
        space={},
        command=[],
        parameters={},
        objectives=[],
        epochs=None,
        created=1.0,
        tracking_uri="sqlite:///x.db",
        experiment_id="0",
        id="x",
    )
    ended = replace(record, end={"status": "FINISHED"})
    for name, kept in {"a": ended, "b": record, "c d": record, "e": record}.items():
        make_run(tmp_path / "runs" / name / "trial-0000")
        write_record(LocalStorage(tmp_path / "runs" / name), kept)
    damage(tmp_path / "runs" / "b" / "sweep.json", text("{"))
    os.mkfifo(tmp_path / "runs" / "c d" / "journal.log")
    with (tmp_path / "runs" / "e" / "journal.log").open("w") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        done = vinedresser("status", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    finished, damaged, blocked, running = done.stdout.splitlines()
    assert finished == "sweep a   finished   1 trial   vinedresser status runs/a"
    assert damaged.startswith("sweep b   unreadable: runs/b/sweep.json: not a valid SweepRecord")
    assert blocked.startswith("sweep c d   unreadable: ")
    assert "runs/c d/journal.log: a FIFO, not a file   1 trial" in blocked
    assert running == "sweep e   running   1 trial   vinedresser status runs/e"
    make_run(tmp_path / "runs" / "single", name="single")
    lines = vinedresser("status", "runs", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "single", *["sweep"] * 4]
