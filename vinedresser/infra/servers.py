"""Local servers: MLflow's pages on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from vinedresser.errors import LaunchError
from vinedresser.infra.tracking.location import absolute_uri, sqlite_path

__all__ = ["LocalServer", "mlflow_page", "mlflow_ui_command", "start_mlflow_ui", "stop_server"]

# Without its job runner MLflow's server takes 0.5 GB instead of 1.2, and starts in a third of the
# time; nothing of ours is a job.
_ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
_POLL_SECONDS = 0.1
_LAST_OUTPUT_BYTES = 2000


class LocalServer(NamedTuple):
    """A server that answers.

    Attributes:
        process: its first process, leader of a session and process group of its own.
        url: where it answers.
    """

    process: subprocess.Popen[bytes]
    url: str


def mlflow_ui_command(uri: str, *, host: str = "127.0.0.1", port: int) -> list[str]:
    """Return the command that serves MLflow's pages on a tracking database.

    Args:
        uri: tracking URI of a database; a server needs no second server.
        host: address to listen on.
        port: port to listen on.

    Raises:
        ConfigError: not a tracking URI.
    """
    uri = absolute_uri(uri)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    path = sqlite_path(uri)
    if path is not None:
        command += ["--artifacts-destination", (path.parent / "mlartifacts").as_uri()]
    command += ["--host", host, "--port", str(port), "--workers", "1"]
    return [*command, "--uvicorn-opts", "--log-level warning"]


def mlflow_page(url: str, experiment_id: str, run_id: str | None = None) -> str:
    """Return the address of the page that compares an experiment's runs, or of one run's page.

    Args:
        url: of the server.
        experiment_id: from `prepare_tracking`.
        run_id: MLflow's run.
    """
    # Without the workflow type, MLflow 3 opens its pages for language models.
    page = f"{url.rstrip('/')}/#/experiments/{experiment_id}/runs"
    if run_id is not None:
        return f"{page}/{run_id}?workflowType=machine_learning"
    return f"{page}?workflowType=machine_learning&compareRunsMode=CHART"


def start_mlflow_ui(
    uri: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    timeout: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> LocalServer:
    """Start MLflow's server on a tracking database and wait until it answers.

    Args:
        uri: tracking URI of a database.
        host: address to listen on; keep it a loopback address, the pages know no passwords.
        port: port to listen on; a free one, when not given.
        timeout: seconds it may take to answer (5 s on an idle machine).
        environment: variables for the server, added to the inherited ones.

    Returns:
        The server; end it with `stop_server`.

    Raises:
        ConfigError: not a tracking URI.
        LaunchError: the port is in use, or the server ended, or did not answer in time; has the
            end of its output.
    """
    port = _free_port(host, port or 0)
    command = mlflow_ui_command(uri, host=host, port=port)
    url = f"http://{host}:{port}"
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_ENVIRONMENT, **(environment or {})},
            start_new_session=True,
        )
        server = LocalServer(process, url)
        try:
            _wait_until_it_answers(server, timeout, output)
        except BaseException:
            stop_server(server)
            raise
    return server


def stop_server(server: LocalServer, *, grace: float = 10.0) -> None:
    """End a server with all its workers: ask (SIGTERM), then kill.

    Args:
        server: from `start_mlflow_ui`.
        grace: seconds between asking and killing.
    """
    _signal_group(server.process, signal.SIGTERM)
    try:
        server.process.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal_group(server.process, signal.SIGKILL)
    server.process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group outlives its leader as long as a worker is left.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _free_port(host: str, wanted: int) -> int:
    """Return the port, or a free one for 0; what answers there later is then our own server."""
    try:
        with socket.create_server((host, wanted)) as probe:
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        raise LaunchError(f"MLflow's server cannot listen on {host}:{wanted}: {error}") from error


def _wait_until_it_answers(server: LocalServer, timeout: float, output: IO[bytes]) -> None:
    deadline = time.monotonic() + timeout
    while not _is_healthy(server.url):
        code = server.process.poll()
        if code is not None:
            raise LaunchError(f"MLflow's server ended with code {code}: {_end_of(output)}")
        if time.monotonic() > deadline:
            raise LaunchError(
                f"MLflow's server did not answer at {server.url} within {timeout:g} s: "
                f"{_end_of(output)}"
            )
        time.sleep(_POLL_SECONDS)


def _is_healthy(url: str) -> bool:
    # Loopback is asked directly, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - _LAST_OUTPUT_BYTES, 0))
    return output.read().decode(errors="replace").strip()
