"""Deploy a file to Prefect: a worker runs its flow, on a schedule."""

from __future__ import annotations

from pathlib import Path

from vinedresser.infra.alert_events import explain_alerts
from vinedresser.infra.configuration import load_toml
from vinedresser.infra.deployment import Deployed, make_deployment
from vinedresser.infra.scheduling import Schedule
from vinedresser.infra.servers import WORK_POOL
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.monitor_file import Monitor, load_monitor
from vinedresser.tasks.config.prune_file import load_pruning
from vinedresser.tasks.config.sweep_file import load_sweep


def deploy(
    path: Path,
    *,
    schedule: Schedule | None = None,
    name: str | None = None,
    pool: str | None = None,
) -> Deployed:
    """Deploy the flow of a file, which is checked now and read again for each run.

    Args:
        path: the file; with a table ``sweep`` or ``prune``, each run makes a separate one. With a
            table ``monitor``, the flow that explains its alerts is deployed, too.
        schedule: when to run it; None: only on request.
        name: name of the deployment; None: ``run.name`` of the file.
        pool: the work pool; None: that of `vinedresser up`.

    Raises:
        ConfigError: the file or the schedule is invalid, or the work pool does not exist.
        MissingDependency: the file needs a package that is not installed.
        LaunchError: Prefect's server is unavailable or refused, or does not act on the schedule.
    """
    document = load_toml(path)
    pool = pool or WORK_POOL
    if "monitor" in document:
        return _deploy_monitor(load_monitor(path), schedule, name, pool)
    if "sweep" in document:
        kind, extra = "sweep", {"dated": True}
        run = load_sweep(path).experiment.run
    elif "prune" in document:
        kind, extra = "prune", {"dated": True}
        run = load_pruning(path).experiment.run
    else:
        kind, extra = "train", {}
        run = load_experiment(path).run
    return make_deployment(
        f"vinedresser.flows.{kind}:{kind}",
        name or run.name,
        {"path": str(path.absolute()), **extra},
        directory=path.absolute().parent,
        schedule=schedule,
        pool=pool,
    )


def _deploy_monitor(
    monitor: Monitor, schedule: Schedule | None, name: str | None, pool: str
) -> Deployed:
    """Deploy a monitor, what explains its alerts, and the automation that connects them."""
    name, folder = name or monitor.name, monitor.path.parent
    path = {"path": str(monitor.path)}
    made = make_deployment(
        "vinedresser.flows.monitor:monitor",
        name,
        {**path, "emits": monitor.model.build is not None},
        directory=folder,
        schedule=schedule,
        pool=pool,
    )
    if monitor.model.build is not None:
        explaining = make_deployment(
            "vinedresser.flows.explain:explain",
            name,
            path,
            directory=folder,
            pool=pool,
            queues=True,
        )
        explain_alerts(monitor.name, monitor.state, explaining.id)
    return made
