"""MLflow's UI on loopback."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

from vinedresser.infra.catalog.tracking_uri import absolute_uri, mlflow_uri, sqlite_path
from vinedresser.infra.services.servers.local_server import LocalServer, free_port, start_server

__all__ = ["mlflow_page", "start_mlflow_ui"]

# The UI has no password.
_HOST = "127.0.0.1"
# Seconds to wait for an answer: 5 on an idle machine.
_PATIENCE = 120.0
# Without its job runner, which is not needed, MLflow's server takes 0.5 GB instead of 1.2 and
# starts in a third of the time.
_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def mlflow_page(url: str, experiment_id: str, run_id: str | None = None, view: str = "") -> str:
    """Return the URL of the page with an experiment's runs, or of the page of one run.

    Args:
        url: URL of the server.
        experiment_id: the result of `prepare_tracking`.
        run_id: id of the MLflow run; None: the whole experiment.
        view: the result of `save_verdict_view`; "": charts that compare the runs.
    """
    # Without the workflow type, MLflow 3 opens its pages for language models.
    page = f"{url.rstrip('/')}/#/experiments/{experiment_id}/runs"
    if run_id is not None:
        return f"{page}/{run_id}?workflowType=machine_learning"
    if view:
        return (
            f"{page}?workflowType=machine_learning&compareRunsMode=TABLE&viewStateShareKey={view}"
        )
    return f"{page}?workflowType=machine_learning&compareRunsMode=CHART"


def start_mlflow_ui(uri: str, *, port: int | None = None) -> LocalServer:
    """Start MLflow's server on a tracking database and wait until it answers.

    Args:
        port: port to listen on; None: a free one.

    Returns:
        The server; end it with `stop_server`.

    Raises:
        ConfigError: not a tracking URI.
        LaunchError: the port is in use, or the server ended or did not answer in time; the message
            has the end of its output.
    """
    uri = absolute_uri(uri)
    port = free_port(_HOST, port or 0, "MLflow's server")
    url = f"http://{_HOST}:{port}"
    return start_server(
        "MLflow's server",
        _command(uri, port),
        url,
        lambda: _is_healthy(url),
        timeout=_PATIENCE,
        # Not as an argument: the URI may have a password, and every user sees command lines.
        environment={**_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": mlflow_uri(uri)},
    )


def _command(uri: str, port: int) -> list[str]:
    """Return the command that serves MLflow's UI for the database in `MLFLOW_BACKEND_STORE_URI`.

    Args:
        uri: absolute tracking URI of the database.
    """
    command = [sys.executable, "-m", "mlflow", "server"]
    path = sqlite_path(uri)
    if path is not None:
        command += ["--artifacts-destination", (path.parent / "mlartifacts").as_uri()]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1"]
    return [*command, "--uvicorn-opts", "--log-level warning"]


def _is_healthy(url: str) -> bool:
    # Without a proxy, even if the environment names one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
