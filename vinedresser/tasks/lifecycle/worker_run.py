"""The lifecycle of a run on a worker of a cluster; its flow prepares, records and settles it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.services.clusters.cluster import open_cluster
from vinedresser.infra.services.clusters.flow_heartbeat import watch_flow
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import parse_location
from vinedresser.plain_logs import plain_logger
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.lifecycle.supervision import Attendance, Stages, supervise
from vinedresser.tasks.places.cluster_place import WorkOrder
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.places.shipment import Delivery, Shipment, unpack

__all__ = ["run_shipment", "work_order"]

_log = plain_logger(__name__)


@contextmanager
def work_order(experiment: Experiment) -> Iterator[WorkOrder | None]:
    """Connect to the experiment's cluster for the duration of the context.

    Yields:
        The order for its workers; None if the runs train in local processes.

    Raises:
        ConfigError: the cluster's workers cannot reach Prefect's server.
        LaunchError: the cluster is unavailable or cannot be started.
    """
    run = experiment.run
    with open_cluster(
        experiment.runner,
        experiment.store,
        max_concurrent=experiment.max_concurrent,
        cpus=run.cpus,
        gpus=run.own_gpus,
    ) as cluster:
        if cluster is None:
            yield None
        else:
            yield WorkOrder(cluster, run_shipment, tuple(experiment.rules))


def _complete(place: RunPlace) -> None:
    """Wait for the upload of a run, by the method of its kind of place."""
    place.complete()


@task(name="run", task_run_name="run {name}", cache_policy=NO_CACHE)
def run_shipment(name: str, shipment: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Train and judge a run that was prepared elsewhere, and return its `Delivery`.

    It ends with a checkpoint if this process dies or its flow's heartbeat stops.

    Args:
        name: name of the run, for Prefect's pages.
        shipment: a `Shipment`.

    Raises:
        AlreadyARun: another worker has or had it.
        StoreError: the store refused a request.
    """
    sent = Shipment(**shipment)
    place = unpack(sent, _log.warning)
    attendance = Attendance(sent.groups, record=False)

    def stop(reason: str) -> None:
        request_stop(place.directory, by="owner", reason=reason)

    with watch_flow(parse_location(sent.store), stop):
        errors = supervise(place, attendance, Stages(finish=_complete))
    arrived = [str(one.location) for one in place.arrived]
    every = [str(one.location) for one in (place, *place.additional)]
    missing = [one for one in every if one not in arrived]
    return asdict(Delivery(arrived, missing, [str(error) for error in errors]))
