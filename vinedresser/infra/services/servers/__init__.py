"""Local servers on loopback: MLflow's UI, Prefect with a worker, and an S3 server."""

from __future__ import annotations

from vinedresser.infra.services.servers.local_server import LocalServer, stop_server
from vinedresser.infra.services.servers.mlflow_ui import mlflow_page, start_mlflow_ui
from vinedresser.infra.services.servers.prefect_server import (
    WORK_POOL,
    StandingPrefect,
    bring_up_prefect,
    noted_prefect,
    standing_prefect,
    take_down_prefect,
)
from vinedresser.infra.services.servers.private_prefect import (
    PrivatePrefect,
    is_private,
    start_private_prefect,
)
from vinedresser.infra.services.servers.standing import (
    StandingServer,
    bring_up,
    noted_server,
    take_down,
)

__all__ = [
    "WORK_POOL",
    "LocalServer",
    "PrivatePrefect",
    "StandingPrefect",
    "StandingServer",
    "bring_up",
    "bring_up_prefect",
    "is_private",
    "mlflow_page",
    "noted_prefect",
    "noted_server",
    "standing_prefect",
    "start_mlflow_ui",
    "start_private_prefect",
    "stop_server",
    "take_down",
    "take_down_prefect",
]
