"""Tracking through a real MLflow server that is killed and restarted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import psutil
import pytest

from vinedresser.errors import LaunchError, TrackingError
from vinedresser.infra.services.servers import (
    LocalServer,
    mlflow_page,
    start_mlflow_ui,
    stop_server,
)
from vinedresser.infra.services.tracking import (
    MetricSink,
    create_run,
    finish,
    prepare_tracking,
    save_verdict_view,
)

pytestmark = pytest.mark.thorough

SOON = 60.0


@pytest.fixture
def store(mlflow_store: Callable[[Path], Path], tmp_path: Path) -> str:
    """Return the URI of the server's database."""
    return f"sqlite:///{mlflow_store(tmp_path)}/mlflow.db"


@pytest.fixture
def server(store: str) -> Iterator[LocalServer]:
    """Return a running server of that database."""
    running = start_mlflow_ui(store)
    yield running
    stop_server(running)


@pytest.fixture
def unused_url() -> Iterator[str]:
    """Return a URL without a server, whose port stays reserved."""
    with socket.socket() as probe:
        # Bound but not listening: connections are refused, and no other process gets the port.
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def get(url: str) -> bytes:
    """Return the response body."""
    with urllib.request.urlopen(url, timeout=SOON) as answer:
        content: bytes = answer.read()
        return content


def history(url: str, run_id: str, key: str) -> list[dict[str, Any]]:
    """Return a metric's history from MLflow's REST interface."""
    query = f"run_id={run_id}&metric_key={key}&max_results=25000"
    answer = json.loads(get(f"{url}/api/2.0/mlflow/metrics/get-history?{query}"))
    points: list[dict[str, Any]] = answer["metrics"]
    return points


def words_of(server: LocalServer) -> list[str]:
    """Return the words of the command lines of a server and of its workers."""
    first = psutil.Process(server.process.pid)
    commands = [one.cmdline() for one in (first, *first.children(recursive=True))]
    assert all(commands)
    return [word for words in commands for word in words]


def test_an_outage_loses_nothing_and_no_command_line_has_the_database(
    server: LocalServer, store: str, tmp_path: Path
) -> None:
    url = server.url
    assert get(f"{url}/health") == b"OK"
    assert not [word for word in words_of(server) if "sqlite:" in word]
    experiment_id = prepare_tracking(url, "digits")
    run_id = create_run(url, experiment_id, "run", {"lr": 0.1}, {})
    said: list[str] = []
    sink = MetricSink(url, run_id, interval=0.1, on_problem=said.append)

    def log(steps: range) -> None:
        started = time.monotonic()
        for step in steps:
            sink.log("train/loss", 1 / (step + 1), step=step, time=1e9 + step)
        assert time.monotonic() - started < 1.0

    log(range(1500))
    assert sink.flush(SOON)
    log(range(1500, 1800))
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    log(range(1800, 4000))
    assert not sink.flush(1.0)
    with pytest.raises(TrackingError, match=url):
        finish(url, run_id, "FINISHED", {}, {}, timeout=0)

    report = tmp_path / "report.html"
    report.write_text("<p>why")
    again = start_mlflow_ui(store, port=int(url.rpartition(":")[2]))
    try:
        assert sink.close(SOON)
        finish(url, run_id, "KILLED", {"stop.rule": "nonfinite"}, {"report.html": report})
        points = history(url, run_id, "train/loss")
        assert [(point["step"], point["value"]) for point in points] == [
            (step, 1 / (step + 1)) for step in range(4000)
        ]
        assert len(said) == 2, said
        assert url in said[0]
        assert "available again" in said[1]
        run = json.loads(get(f"{url}/api/2.0/mlflow/runs/get?run_id={run_id}"))["run"]
        assert run["info"]["status"] == "KILLED"
        assert get(f"{url}/get-artifact?path=report.html&run_uuid={run_id}") == b"<p>why"
    finally:
        stop_server(again)


def test_an_unreachable_server_delays_nothing(unused_url: str) -> None:
    said: Queue[str] = Queue()
    sink = MetricSink(unused_url, "0" * 32, interval=0.01, on_problem=said.put)
    for step in range(100):
        sink.log("train/loss", 0.0, step=step, time=1e9)
    assert unused_url in said.get(timeout=SOON)
    assert not sink.flush(0.2)
    assert not sink.close(0.2)
    assert said.empty()
    assert sink.waiting == 100


def test_preparing_names_an_unreachable_server(unused_url: str) -> None:
    with pytest.raises(TrackingError, match=f"{unused_url}.*tried for 0.1 s"):
        prepare_tracking(unused_url, "digits", timeout=0.1)


def test_a_port_in_use_is_named(store: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"cannot listen on 127.0.0.1:{port}"):
            start_mlflow_ui(store, port=port)


@pytest.mark.slow  # the gate has any server in tests/infra/services/test_local_servers.py
def test_a_server_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be one " * 100)
    with pytest.raises(LaunchError, match="file is not a database"):
        start_mlflow_ui(f"sqlite:///{tmp_path}/notes.txt")


def test_pages_open_on_trainings_rather_than_language_models() -> None:
    page = "http://127.0.0.1:5000/#/experiments/3/runs"
    assert mlflow_page("http://127.0.0.1:5000/", "3") == (
        f"{page}?workflowType=machine_learning&compareRunsMode=CHART"
    )
    assert mlflow_page("http://127.0.0.1:5000", "3", "ab") == (
        f"{page}/ab?workflowType=machine_learning"
    )


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
def test_the_page_that_opens_has_the_verdict_of_each_trial_of_a_sweep(
    server: LocalServer, store: str, tmp_path: Path
) -> None:
    experiment_id = prepare_tracking(store, "digits")
    sweep = create_run(store, experiment_id, "search", {}, {})
    trial = create_run(store, experiment_id, "trial-0000", {}, {"mlflow.parentRunId": sweep})
    tags = {"verdict": "stopped by nonfinite at step 208", "verdict.cause": "log(0)"}
    finish(store, trial, "KILLED", tags, {}, metrics={"eval/loss": [(208, 0.5)]})
    view = save_verdict_view(store, experiment_id)
    page = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={tmp_path}/browser", "--window-size=2400,1000"),
            *("--virtual-time-budget=20000", mlflow_page(server.url, experiment_id, view=view)),
        ],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=True,
    ).stdout
    columns = list(dict.fromkeys(re.findall('col-id="(?:tags|metrics).`([^"]*)`"', page)))
    assert sorted(columns) == ["eval/loss", "verdict", "verdict.cause"]
    for text in ("search", "trial-0000", *tags.values(), "first step with the symptom"):
        assert f">{text}<" in page or f": {text};" in page, text
