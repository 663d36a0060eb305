"""Flows whose Prefect server is gone, hangs, refuses them, or is no server of Prefect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.pruning import pruning_flows
from tests.paths import SCRIPTS
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.store.reading.reader import open_run

EXPERIMENT = f"""
[run]
name = "e"
command = ["python", "{SCRIPTS / "cluster_trainer.py"}"]
store = "runs"
parameters = {{ x = 0.5, epochs = 4, pause = 0.1, hold = "hold" }}

[variants.a]
[variants.b]
"""
GONE = "vinedresser: Prefect's private server has ended or does not answer; the work was completed"


def private_servers(flow: int) -> list[int]:
    """Return the private server of a flow."""
    return [
        child.pid
        for child in psutil.Process(flow).children()
        if "vinedresser.infra.services.servers.prefect_process" in child.cmdline()
    ]


@contextmanager
def training(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a flow with two trainings, of which the second begins after the first."""
    with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
        flow = subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "train", "e.toml", "--max-concurrent", "1"],
            cwd=folder,
            stdout=out,
            stderr=err,
        )
        try:
            yield flow
        finally:
            flow.kill()
            flow.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.chaos)],
    ids=lambda one: one.name,
)
def test_a_flow_completes_its_runs_without_its_private_server(
    tmp_path: Path,
    number: signal.Signals,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[..., dict[str, Any]],
) -> None:
    mlflow_store(tmp_path / "runs")
    (tmp_path / "e.toml").write_text(EXPERIMENT, encoding="utf-8")
    (tmp_path / "hold").touch()
    with training(tmp_path) as flow:
        until(lambda: [*tmp_path.glob("runs/e-a/index/0/*.json")] or flow.poll() is not None)
        [server] = private_servers(flow.pid)
        os.kill(server, number)
        (tmp_path / "hold").unlink()
        ends = [tmp_path / "runs" / name / "exit.json" for name in ("e-a", "e-b")]
        until(lambda: all(end.exists() for end in ends), "the end of both trainings")
        ended = time.monotonic()
        assert flow.wait(180) == 1
        waited = time.monotonic() - ended
    out, err = (tmp_path / name for name in ("out.txt", "err.txt"))
    assert out.read_text(encoding="utf-8").count(GONE) == 1
    assert err.read_bytes() == b""
    assert [open_run(end.parent).status.state for end in ends] == ["finished", "finished"]
    assert {run["status"] for run in mlflow_runs(tmp_path / "runs").values()} == {"FINISHED"}
    # Two requests with two retries each; or the time after which it hangs.
    assert waited < 170, "the flow waited for each event"
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", "reconcile", "runs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "nothing to reconcile\n"


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda one: one.name)
def test_a_pruning_completes_its_rounds_without_its_private_server(
    tmp_path: Path,
    number: signal.Signals,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[..., dict[str, Any]],
) -> None:
    mlflow_store(tmp_path / "runs")
    mark = tmp_path / "mark"
    held = f'HOLD = "train", UNTIL = "released", MARK = "{mark}"'
    pruning_flows.write(tmp_path, environment=held)
    flow = pruning_flows.start(tmp_path)
    try:
        until(lambda: mark.exists() or flow.poll() is not None, "a round", seconds=200)
        [server] = private_servers(flow.pid)
        os.kill(server, number)
        mark.with_suffix(".released").touch()
        released = time.monotonic()
        output, _ = flow.communicate(timeout=300)
        waited = time.monotonic() - released
    finally:
        flow.kill()
        flow.wait()
    assert flow.returncode == 1
    assert output.count(GONE) == 1
    assert "Traceback" not in output
    assert len(pruning_flows.records(tmp_path / "runs" / "small")) == 3
    assert {run["status"] for run in mlflow_runs(tmp_path / "runs").values()} == {"FINISHED"}
    assert waited < 170, "the flow waited for each event"


class _Answers(BaseHTTPRequestHandler):
    """Answers everything as its path says: /STATUS/api/..."""

    def do_GET(self) -> None:
        status = int(self.path.split("/")[1])
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<html>" if status == 200 else b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[str]:
    """Return the URL of a server that answers requests to /STATUS with a status."""
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


REQUIRE = """
import json, sys
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from vinedresser.errors import VinedresserError
from vinedresser.infra.services.prefect_environment import require_server
for url, password in json.loads(sys.argv[1]):
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: password}):
        try:
            require_server()
        except VinedresserError as error:
            print(type(error).__name__, error)
"""
REFUSED = [
    ("401", None, "asks for credentials: set PREFECT_API_AUTH_STRING to user:password"),
    ("401", "a:secret", "refuses the credentials in PREFECT_API_AUTH_STRING"),
    ("403", "a:secret", "refuses the credentials in PREFECT_API_AUTH_STRING"),
    ("404", None, "(PREFECT_API_URL) is not the API of a Prefect server"),
    ("200", None, "(PREFECT_API_URL) is not the API of a Prefect server"),
]


@pytest.mark.thorough
def test_a_server_that_refuses_is_named_in_one_sentence(answers: str) -> None:
    servers = [(f"{answers}/{status}/api", password) for status, password, _ in REFUSED]
    asked = json.dumps([*servers, ("localhost:4200/api", None)])
    done = COMMANDS.run(["-c", REQUIRE, asked], Path(), os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    for (url, _), (_, _, said), line in zip(servers, REFUSED, lines, strict=True):
        assert line.startswith(f"ConfigError Prefect's server at {url} ")
        assert said in line
        assert "secret" not in line
    assert last == (
        "ConfigError localhost:4200/api (PREFECT_API_URL): must be an address like "
        "http://HOST:4200/api"
    )
