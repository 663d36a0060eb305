"""Which Prefect server the workers of a cluster report to."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from vinedresser.errors import ConfigError
from vinedresser.infra.services.clusters.cluster import open_cluster
from vinedresser.infra.services.clusters.runner_settings import RunnerSettings
from vinedresser.infra.services.servers import start_private_prefect


def test_workers_on_other_machines_need_a_server_of_the_user(tmp_path: Path) -> None:
    server = start_private_prefect()
    try:
        url = server.environment()["PREFECT_API_URL"]
        elsewhere = RunnerSettings("dask", "tcp://scheduler.example:8786")
        cluster = open_cluster(elsewhere, tmp_path, max_concurrent=1, cpus=None, gpus=0)
        with (
            temporary_settings({PREFECT_API_URL: url}),
            pytest.raises(ConfigError, match=r"scheduler\.example:8786 .* set PREFECT_API_URL"),
            cluster,
        ):
            pass
    finally:
        server.stop()
