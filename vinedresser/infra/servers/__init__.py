"""Local servers, on loopback: MLflow's pages, and an S3 of one's own."""

from __future__ import annotations

from vinedresser.infra.servers.local_server import LocalServer, stop_server
from vinedresser.infra.servers.mlflow_ui import mlflow_page, mlflow_ui_command, start_mlflow_ui
from vinedresser.infra.servers.standing import StandingServer, bring_up, take_down

__all__ = [
    "LocalServer",
    "StandingServer",
    "bring_up",
    "mlflow_page",
    "mlflow_ui_command",
    "start_mlflow_ui",
    "stop_server",
    "take_down",
]
