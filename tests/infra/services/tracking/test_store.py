"""Tracking on a real SQLite database of MLflow, read back with sqlite3."""

from __future__ import annotations

import math
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.errors import ConfigError, TrackingError
from vinedresser.infra.catalog.tracking_uri import absolute_uri, sqlite_path
from vinedresser.infra.services.tracking import (
    RUN_TAG,
    MetricSink,
    create_run,
    finish,
    prepare_tracking,
    set_tags,
    start_preparing,
)
from vinedresser.infra.services.tracking.client import connected

PREPARE = """
import os, sys
from vinedresser.infra.services.tracking import prepare_tracking

pids = []
for _ in range(3):
    pids.append(os.fork())
    if not pids[-1]:
        print(prepare_tracking(sys.argv[1], "digits", timeout=120.0))
        sys.exit()
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""
KILLED = """
import os, pathlib, signal, sys, time
from tests.waiting import until
from vinedresser.infra.services.tracking import prepare_tracking

pid = os.fork()
if not pid:
    prepare_tracking(sys.argv[1], "digits", timeout=120.0)
    os._exit(0)
until(lambda: any(path.stat().st_size for path in pathlib.Path().glob("*/mlflow.db")))
os.kill(pid, signal.SIGKILL)
assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it had ended"
"""
# Seconds; allows for a busy machine.
SOON = 60.0


@pytest.fixture
def uri(mlflow_store: Callable[[Path], Path], tmp_path: Path) -> str:
    """Return the tracking URI of an empty database."""
    # Paths are not URLs.
    path = mlflow_store(tmp_path / "my 100% store") / "mlflow.db"
    return f"sqlite:///{quote(str(path))}"


@pytest.fixture
def run_id(uri: str) -> str:
    """Return a fresh MLflow run in that database."""
    return create_run(uri, prepare_tracking(uri, "digits"), "run", {}, {})


@contextmanager
def changing(uri: str) -> Iterator[sqlite3.Connection]:
    """Provide a connection that changes the database at once."""
    path = sqlite_path(uri)
    assert path is not None
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        yield connection


def rows(uri: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return rows of the database."""
    path = sqlite_path(uri)
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, values).fetchall()


@contextmanager
def locked(uri: str) -> Iterator[None]:
    """Hold the database's exclusive lock, as another program could."""
    path = sqlite_path(uri)
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have this process and its children make the template of databases; return its folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "state" / "vinedresser" / "mlflow"


@pytest.mark.thorough
def test_processes_can_prepare_a_fresh_database_together(tmp_path: Path, no_template: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    done = COMMANDS.run(["-c", PREPARE, uri], tmp_path, os.environ)
    # MLflow's messages about migrations are suppressed.
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n" * 3, "")
    assert rows(uri, "SELECT name, artifact_location FROM experiments WHERE experiment_id = 1") == [
        ("digits", (tmp_path / "new" / "mlartifacts").as_uri())
    ]
    assert [path.suffix for path in sorted(no_template.iterdir())] == [".db", ".lock"]


@pytest.mark.thorough
def test_a_killed_preparation_is_repeated(tmp_path: Path, no_template: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    killed = COMMANDS.run(["-c", KILLED, uri], tmp_path, os.environ)
    assert killed.returncode == 0, killed.stderr
    assert not (tmp_path / "mlflow.db").exists()
    assert [*no_template.glob("*.db")] == []
    assert prepare_tracking(uri, "digits") == "1"


@pytest.mark.thorough
def test_a_thread_of_this_process_is_awaited_for_as_long_as_it_needs(
    tmp_path: Path, no_template: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    said: list[str] = []
    start_preparing(uri, "digits", said.append)
    wait_for(lambda: bool(said))
    assert prepare_tracking(uri, "digits", timeout=0.0, say=said.append) == "1"
    assert len(said) == 1, "the database was made twice"


@pytest.mark.thorough
def test_a_deleted_experiment_is_named(uri: str) -> None:
    experiment_id = prepare_tracking(uri, "digits")
    path = sqlite_path(uri)
    assert path is not None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE experiments SET lifecycle_stage = 'deleted'")
    with pytest.raises(TrackingError, match=rf"'digits' was deleted.*{experiment_id}"):
        prepare_tracking(uri, "digits")


@pytest.mark.thorough
def test_a_path_with_a_question_mark_is_refused(tmp_path: Path) -> None:
    uri = f"sqlite:///{quote(str(tmp_path / 'why?' / 'mlflow.db'))}"
    with pytest.raises(ConfigError, match="cannot open a path that contains a question mark"):
        prepare_tracking(uri, "digits")


def test_a_file_that_is_not_a_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be one " * 100)
    with pytest.raises(TrackingError, match=r"notes\.txt: file is not a database"):
        prepare_tracking(f"sqlite:///{path}", "digits", timeout=0)
    assert path.read_text().startswith("not a database")


@pytest.mark.thorough
def test_a_run_has_its_parameters_and_tags(uri: str) -> None:
    experiment_id = prepare_tracking(uri, "digits")
    parameters = {"lr": 0.1, "layers": [64, 10], "note": "x" * 9000}
    parameters |= {f"p{number}": number for number in range(150)}
    run_id = create_run(
        uri, experiment_id, "digits-1", parameters, {RUN_TAG: "3f2a9c"}, started=1e9
    )
    stored = dict(rows(uri, "SELECT key, value FROM params WHERE run_uuid = ?", run_id))
    assert len(stored) == 153
    assert stored["lr"] == "0.1"
    assert stored["layers"] == "[64, 10]"
    assert stored["note"].startswith("xxx")
    assert rows(uri, "SELECT name, status, start_time FROM runs WHERE run_uuid = ?", run_id) == [
        ("digits-1", "RUNNING", 10**12)
    ]


@pytest.mark.thorough
def test_creating_a_run_again_finds_the_first(uri: str) -> None:
    # As after a flow that was killed between creating the run and recording its id.
    experiment_id = prepare_tracking(uri, "digits")
    first = create_run(uri, experiment_id, "a", {"lr": 0.1}, {RUN_TAG: "3f2a9c"})
    assert create_run(uri, experiment_id, "a", {"lr": 0.1}, {RUN_TAG: "3f2a9c"}) == first
    assert create_run(uri, experiment_id, "b", {"lr": 0.1}, {RUN_TAG: "other"}) != first


def test_creating_a_new_run_is_continued_after_a_failure(uri: str) -> None:
    experiment_id = prepare_tracking(uri, "digits")
    with changing(uri) as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON params BEGIN SELECT RAISE(ABORT, 'no'); END"
        )

    def accept() -> None:
        until(lambda: rows(uri, "SELECT * FROM runs"))
        with changing(uri) as database:
            database.execute("DROP TRIGGER refuse")

    beside = threading.Thread(target=accept)
    beside.start()
    run_id = create_run(uri, experiment_id, "a", {"lr": 0.1}, {RUN_TAG: "3f2a9c"}, new=True)
    beside.join()
    assert rows(uri, "SELECT run_uuid FROM runs") == [(run_id,)]
    assert rows(uri, "SELECT run_uuid, value FROM params") == [(run_id, "0.1")]


def test_a_parameter_that_changed_is_refused_at_once(uri: str) -> None:
    experiment_id = prepare_tracking(uri, "digits")
    create_run(uri, experiment_id, "a", {"lr": 0.1}, {RUN_TAG: "3f2a9c"})
    with pytest.raises(TrackingError, match="lr"):
        create_run(uri, experiment_id, "a", {"lr": 0.2}, {RUN_TAG: "3f2a9c"}, timeout=SOON)


def test_metrics_arrive_exactly(uri: str, run_id: str) -> None:
    values = [0.1 + 0.2, -0.0, 5e-324, 1.5e308, math.inf, -math.inf, math.nan]
    sink = MetricSink(uri, run_id)
    for step, value in enumerate(values):
        assert sink.log("train/loss", value, step=step, time=1e9 + step / 8)
    assert sink.close(SOON)
    stored = rows(uri, "SELECT step, timestamp, value, is_nan FROM metrics ORDER BY step")
    largest = sys.float_info.max  # MLflow's spelling of infinity, and 0 with a flag of NaN
    expected = [*values[:4], largest, -largest, 0.0]
    assert stored == [
        (step, 10**12 + step * 125, value, step == 6) for step, value in enumerate(expected)
    ]


@pytest.mark.thorough
def test_sending_again_after_a_restart_duplicates_nothing(uri: str, run_id: str) -> None:
    points = [(step, math.nan if step == 7 else 1 / (step + 1)) for step in range(2500)]
    for part in (points[:1700], points):
        sink = MetricSink(uri, run_id)
        for step, value in part:
            sink.log("train/loss", value, step=step, time=1e9 + step)
        assert sink.close(SOON)
    assert rows(uri, "SELECT count(*) FROM metrics") == [(2500,)]
    assert rows(uri, "SELECT step, value FROM latest_metrics") == [(2499, 1 / 2500)]


@pytest.mark.thorough
def test_a_locked_database_neither_delays_the_caller_nor_loses_metrics(
    uri: str, run_id: str
) -> None:
    said: list[str] = []
    sink = MetricSink(uri, run_id, interval=0.05, on_problem=said.append)
    with locked(uri):
        started = time.monotonic()
        for step in range(3000):
            sink.log("train/loss", 1 / (step + 1), step=step, time=1e9 + step)
        assert time.monotonic() - started < 1.0
        wait_for(lambda: bool(said))
        assert not sink.flush(0.2)
        assert sink.waiting == 3000
    assert sink.flush(SOON)
    assert sink.close(SOON)
    assert rows(uri, "SELECT count(*), max(step) FROM metrics") == [(3000, 2999)]
    assert len(said) == 2, said
    assert "database is locked" in said[0]
    assert uri in said[0]
    assert "available again" in said[1]


def test_a_full_queue_drops_metrics_and_reports_their_number_once(uri: str, run_id: str) -> None:
    said: list[str] = []
    with locked(uri):
        sink = MetricSink(uri, run_id, capacity=10, on_problem=said.append)
        taken = [sink.log("train/loss", 0.0, step=step, time=1e9) for step in range(15)]
    assert taken == [True] * 10 + [False] * 5
    assert not sink.close(SOON)
    assert sink.lost == 5
    assert rows(uri, "SELECT count(*) FROM metrics") == [(10,)]
    assert sum("are lost" in line for line in said) == 1


def test_a_run_unknown_to_mlflow_is_reported_once(uri: str) -> None:
    said: list[str] = []
    sink = MetricSink(uri, "0" * 32, interval=0.01, on_problem=said.append)
    for step in range(5):
        sink.log("train/loss", 0.0, step=step, time=1e9)
        assert sink.flush(SOON)
    assert not sink.close(SOON)
    assert sink.lost == 5
    assert len(said) == 1
    assert "0" * 32 in said[0]


@pytest.mark.thorough
def test_closing_gives_up_in_time_while_the_database_is_locked(uri: str, run_id: str) -> None:
    with locked(uri):
        sink = MetricSink(uri, run_id)
        sink.log("train/loss", 0.0, step=0, time=1e9)
        started = time.monotonic()
        assert not sink.close(0.5)
        assert time.monotonic() - started < 5.0


def test_finishing_twice_sets_the_same_status_tags_and_artifacts(
    uri: str, run_id: str, tmp_path: Path
) -> None:
    report, findings = tmp_path / "r1.html", tmp_path / "default.jsonl"
    report.write_text("<p>why")
    findings.write_text("{}\n")
    artifacts = {"report.html": report, "findings/default.jsonl": findings}
    for _ in range(2):
        tags = {"stop.rule": "nonfinite", "stop.step": 7, "stop.reason": "NaN", "exit.code": None}
        finish(uri, run_id, "KILLED", tags, artifacts, ended=1.5e9)
        assert rows(uri, "SELECT status, end_time FROM runs") == [("KILLED", 1_500_000_000_000)]
        stored = dict(rows(uri, "SELECT key, value FROM tags WHERE run_uuid = ?", run_id))
        assert stored["stop.rule"] == "nonfinite"
        assert stored["stop.step"] == "7"
        assert "exit.code" not in stored
    path = sqlite_path(uri)
    assert path is not None
    folder = path.parent / "mlartifacts" / run_id / "artifacts"
    assert (folder / "report.html").read_text() == "<p>why"
    assert (folder / "findings" / "default.jsonl").read_text() == "{}\n"


def test_finishing_again_keeps_the_end_time(uri: str, run_id: str) -> None:
    finish(uri, run_id, "FINISHED", {}, {})
    before = rows(uri, "SELECT end_time FROM runs")
    finish(uri, run_id, "FINISHED", {"late": "tag"}, {})
    assert rows(uri, "SELECT end_time FROM runs") == before


@pytest.mark.thorough
def test_finishing_waits_for_a_lock_and_reports_giving_up(uri: str, run_id: str) -> None:
    with locked(uri):
        started = time.monotonic()
        with pytest.raises(TrackingError, match=r"sqlite:////.*mlflow\.db: database is locked"):
            finish(uri, run_id, "FINISHED", {}, {}, timeout=0.3)
        assert time.monotonic() - started < 10.0
    assert rows(uri, "SELECT status FROM runs") == [("RUNNING",)]
    finish(uri, run_id, "FINISHED", {}, {}, timeout=0.3)
    assert rows(uri, "SELECT status FROM runs") == [("FINISHED",)]


@pytest.mark.thorough
def test_tags_wait_for_a_lock_if_there_is_time(uri: str, run_id: str) -> None:
    with locked(uri), pytest.raises(TrackingError, match=r"is locked .*\(tried for 0\.3 s\)"):
        set_tags(uri, run_id, {"late": "tag"}, timeout=0.3)
    set_tags(uri, run_id, {"late": "tag"}, timeout=0.3)
    assert rows(uri, "SELECT value FROM tags WHERE key = 'late'") == [("tag",)]


def test_a_missing_artifact_is_named_before_anything_changes(uri: str, run_id: str) -> None:
    with pytest.raises(TrackingError, match=r"'report\.html': no such file /nowhere/r\.html"):
        finish(uri, run_id, "FINISHED", {}, {"report.html": "/nowhere/r.html"})
    assert rows(uri, "SELECT status FROM runs") == [("RUNNING",)]


def test_a_deleted_database_is_reported_and_not_recreated(uri: str, run_id: str) -> None:
    path = sqlite_path(uri)
    assert path is not None
    os.unlink(path)
    with pytest.raises(TrackingError, match="no such file"):
        finish(uri, run_id, "FINISHED", {}, {}, timeout=0)
    assert not path.exists()


def test_sources_of_training_data_are_data_sets_without_secrets(uri: str) -> None:
    experiment = prepare_tracking(uri, "digits")
    data = {
        "train": ["s3://bucket/digits/train/", "s3://bucket/more"],
        "test": ["/data/über\n/test.parquet", "https://ada:secret@example.org/x"],
    }
    runs = [create_run(uri, experiment, "run", {}, {RUN_TAG: "a"}, data=data) for _ in range(2)]
    assert runs[0] == runs[1]
    with connected(absolute_uri(uri)) as client:
        kept = client.get_run(runs[0]).inputs
    assert kept is not None
    inputs = kept.dataset_inputs
    found = {
        (one.tags[0].value, one.dataset.name, one.dataset.source_type, one.dataset.source)
        for one in inputs
    }
    assert len(inputs) == len(found) == 4
    assert ("train", "train", "s3", '{"uri": "s3://bucket/digits/train/"}') in found
    assert {channel for channel, *_ in found} == {"train", "test"}
    assert "secret" not in str(found)
    assert len({one.dataset.digest for one in inputs}) == 4
