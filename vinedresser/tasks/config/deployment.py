"""Deploy a file to Prefect: a worker runs its flow, on a schedule."""

from __future__ import annotations

from pathlib import Path

from vinedresser.infra.configuration import load_toml
from vinedresser.infra.services.alert_events import explain_alerts
from vinedresser.infra.services.deployment import Deployed, make_deployment
from vinedresser.infra.services.scheduling import Schedule
from vinedresser.infra.services.servers import WORK_POOL
from vinedresser.tasks.config.experiment import experiment_of
from vinedresser.tasks.config.monitor_file import Monitor, monitor_of
from vinedresser.tasks.config.prune_file import pruning_of
from vinedresser.tasks.config.retention_file import load_retention
from vinedresser.tasks.config.sweep_file import sweep_of


def deploy(
    path: Path,
    *,
    schedule: Schedule | None = None,
    name: str | None = None,
    pool: str | None = None,
    replace: bool = False,
) -> Deployed:
    """Deploy the flow of a file, which is checked now and read again for each run.

    Args:
        path: the file; with a table ``sweep`` or ``prune``, each run makes a separate one. With a
            table ``monitor``, the flow that explains its alerts is deployed, too.
        schedule: when to run it; None: only on request.
        name: name of the deployment; None: ``run.name`` in the file; of a retention file its own.
        pool: the work pool; None: that of `vinedresser up`.
        replace: replace a deployment of the same name of another file.

    Raises:
        ConfigError: the file or the schedule is invalid, the work pool does not exist, or another
            file has a deployment of this name.
        MissingDependency: the file needs a package that is not installed.
        LaunchError: Prefect's server is unavailable or refused, or does not act on the schedule.
    """
    document = load_toml(path)
    pool = pool or WORK_POOL
    extra: dict[str, bool] = {}
    if "monitor" in document:
        return _deploy_monitor(monitor_of(document, path), schedule, name, pool, replace=replace)
    if "sweep" in document:
        kind, extra = "sweep", {"dated": True}
        usual = sweep_of(document, path).experiment.run.name
    elif "prune" in document:
        kind, extra = "prune", {"dated": True}
        usual = pruning_of(document, path).experiment.run.name
    elif "retention" in document:
        kind = "retain"
        load_retention(path)
        usual = path.stem
    else:
        kind = "train"
        usual = experiment_of(document, path).run.name
    return make_deployment(
        f"vinedresser.flows.{kind}:{kind}",
        name or usual,
        {"path": str(path.absolute()), **extra},
        directory=path.absolute().parent,
        schedule=schedule,
        pool=pool,
        replace=replace,
    )


def _deploy_monitor(
    monitor: Monitor, schedule: Schedule | None, name: str | None, pool: str, *, replace: bool
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
        replace=replace,
    )
    if monitor.model.build is not None:
        explaining = make_deployment(
            "vinedresser.flows.explain:explain",
            name,
            path,
            directory=folder,
            pool=pool,
            queues=True,
            replace=replace,
        )
        explain_alerts(monitor.name, monitor.state, explaining.id)
    return made
