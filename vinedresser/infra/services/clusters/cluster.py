"""A cluster that distributes trainings: Dask or Ray, through Prefect's task runners."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from prefect.client.orchestration import get_client
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import TaskRunner
from prefect.tasks import Task

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.clusters.flow_heartbeat import beat
from vinedresser.infra.services.clusters.runner_settings import RunnerSettings
from vinedresser.infra.services.servers import is_private
from vinedresser.objects import Location

__all__ = ["Cluster", "open_cluster"]


class Cluster:
    """A connected cluster.

    Args:
        runner: Prefect's task runner for it, which has started.
        needs: returns a context in which the cluster reserves resources for a training.
    """

    def __init__(
        self, runner: TaskRunner[Any], needs: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._runner = runner
        self._needs = needs
        self._lock = threading.Lock()
        # The flow's context: that of a task has the task's parameters, which would be sent, too.
        self._context = copy_context()

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> PrefectFuture[Any]:
        """Run a task of the flow on a worker.

        Raises:
            LaunchError: the cluster refused it.
        """
        with self._lock:
            try:
                future: PrefectFuture[Any] = self._context.run(self._submit, task, parameters)
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                raise LaunchError(f"the cluster refused {task.name}: {error}") from error
            return future

    def _submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> PrefectFuture[Any]:
        with self._needs():
            future: PrefectFuture[Any] = self._runner.submit(task, parameters)
        return future

    @staticmethod
    def is_lost(future: PrefectFuture[Any]) -> bool:
        """Return whether the cluster lost a task because its scheduler died or cancelled it."""
        # The status of Dask's futures; those of Ray end with an error.
        status = getattr(getattr(future, "wrapped_future", None), "status", "pending")
        return status in ("lost", "cancelled")


@contextmanager
def open_cluster(
    settings: RunnerSettings, store: Location, *, max_concurrent: int, cpus: int | None, gpus: int
) -> Iterator[Cluster | None]:
    """Connect to a cluster, or start one on this machine, for the duration of the context.

    A cluster that is started has as many workers as trainings run at the same time. The flow writes
    its heartbeat to the store of the runs.

    Args:
        store: store of the runs.
        max_concurrent: maximum number of trainings at the same time.
        cpus: cores that each training reserves; None: no reservation.
        gpus: GPUs that each training reserves.

    Yields:
        The cluster; None for local processes.

    Raises:
        ConfigError: the workers cannot reach Prefect's server.
        LaunchError: the cluster is unavailable or cannot be started.
    """
    if settings.name == "local":
        yield None
        return
    with temporary_settings({PREFECT_API_URL: _server(settings)}), beat(store):
        if settings.name == "dask":
            runner = _dask(settings, max_concurrent)
            needs = partial(_dask_needs, settings, gpus)
        else:
            runner = _ray(settings, max_concurrent * (cpus or 1))
            needs = partial(_ray_needs, cpus, gpus)
        try:
            runner.__enter__()
            # Dask's client connects on first use, which several threads may do at once.
            getattr(runner, "client", None)
        except (OSError, RuntimeError, ValueError) as error:
            where = settings.address or "this machine"
            raise LaunchError(f"run.runner: no {settings.name} at {where}: {error}") from error
        try:
            yield Cluster(runner, needs)
        finally:
            runner.__exit__(None, None, None)


def _server(settings: RunnerSettings) -> str:
    """Return the address of Prefect's server, to which workers report their tasks."""
    named = PREFECT_API_URL.value()
    if named and not is_private(named):
        return str(named)
    if not _is_here(settings.address):
        raise ConfigError(
            f"run.runner: the workers at {settings.address} report to Prefect; set "
            "PREFECT_API_URL to a server that they can reach"
        )
    if named:
        return str(named)
    with get_client(sync_client=True) as client:
        return str(client.api_url)


def _is_here(address: str | None) -> bool:
    """Return whether a cluster is on this machine."""
    host = urlsplit(address).hostname if address and "://" in address else address
    if host in (None, "auto", "local", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).rpartition(":")[0] or str(host)).is_loopback
    except ValueError:
        return False


def _dask(settings: RunnerSettings, max_concurrent: int) -> TaskRunner[Any]:
    from prefect_dask.task_runners import DaskTaskRunner

    # It logs every worker that comes or goes.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if settings.address is not None:
        return DaskTaskRunner(address=settings.address)
    local = {
        "n_workers": max_concurrent,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "dashboard_address": None,
        # Workers hold no data of a training: their memory needs no limit.
        "memory_limit": None,
    }
    return DaskTaskRunner(cluster_kwargs=local)


def _dask_needs(settings: RunnerSettings, gpus: int) -> AbstractContextManager[Any]:
    """Return a context in which a task goes to a worker with this number of GPUs.

    Workers declare theirs with `--resources GPU=2`; those of a cluster on this machine share its
    GPUs.
    """
    if not gpus or settings.address is None:
        return nullcontext()
    from dask.base import annotate

    return annotate(resources={"GPU": gpus})


def _ray(settings: RunnerSettings, cpus: int) -> TaskRunner[Any]:
    from prefect_ray.task_runners import RayTaskRunner  # type: ignore[import-untyped]

    options: dict[str, Any] = {"log_to_driver": False}
    if settings.address is None:
        options |= {"num_cpus": cpus, "include_dashboard": False}
    runner: TaskRunner[Any] = RayTaskRunner(address=settings.address, init_kwargs=options)
    return runner


def _ray_needs(cpus: int | None, gpus: int) -> AbstractContextManager[Any]:
    """Return a context in which Ray reserves resources for a task."""
    from prefect_ray.context import remote_options  # type: ignore[import-untyped]

    wanted = {"num_cpus": cpus, "num_gpus": gpus or None}
    options = {name: number for name, number in wanted.items() if number is not None}
    context: AbstractContextManager[Any] = remote_options(**options)
    return context
