"""An experiment or sweep file as a deployment of Prefect's: run by a worker, on a schedule."""

from __future__ import annotations

from pathlib import Path

from vinedresser.infra.configuration import load_toml
from vinedresser.infra.deployment import Deployed, Schedule, make_deployment
from vinedresser.infra.servers import WORK_POOL
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.sweep_file import load_sweep

__all__ = ["deploy"]


def deploy(
    path: Path,
    *,
    schedule: Schedule | None = None,
    name: str | None = None,
    pool: str | None = None,
) -> Deployed:
    """Deploy the flow of a file; the file is checked first, and read again whenever it is run.

    Args:
        path: of the file; one with a table ``sweep`` is a sweep, and each of its times makes one of
            its own.
        schedule: when it is run; None: only when somebody asks for it.
        name: of the deployment; None: as the file calls its runs.
        pool: the work pool; None: that of `vinedresser up`.

    Raises:
        ConfigError: the file or the schedule is not right, or there is no such work pool.
        MissingDependency: what the file asks for needs a package that is not there.
        LaunchError: Prefect's server is away, or refused.
    """
    if "sweep" in load_toml(path):
        kind, extra = "sweep", {"dated": True}
        run = load_sweep(path).experiment.run
    else:
        kind, extra = "train", {}
        run = load_experiment(path).run
    return make_deployment(
        f"vinedresser.flows.{kind}:{kind}",
        name or run.name,
        {"path": str(path.absolute()), **extra},
        directory=path.absolute().parent,
        schedule=schedule,
        pool=pool or WORK_POOL,
    )
