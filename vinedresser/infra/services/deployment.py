"""Prefect deployments of vinedresser's flows: schedule, work pool and concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.prefect_environment import require_server
from vinedresser.infra.services.scheduling import Schedule, await_scheduled_run
from vinedresser.infra.services.servers import WORK_POOL, StandingPrefect, standing_prefect

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

__all__ = ["Deployed", "make_deployment"]


@dataclass(frozen=True)
class Deployed:
    """A deployment registered with Prefect.

    Attributes:
        id: Prefect's id.
        name: ``FLOW/NAME``, as Prefect's commands expect it.
        pool: the work pool whose worker runs it.
        server: URL of Prefect's API.
        first: time of the next scheduled run; None without an active schedule.
        has_worker: whether a worker polls the pool.
        catches_up: whether `vinedresser up` makes up for its missed runs.
    """

    id: str
    name: str
    pool: str
    server: str
    first: datetime | None
    has_worker: bool
    catches_up: bool


def make_deployment(
    entrypoint: str,
    name: str,
    parameters: Mapping[str, Any],
    *,
    directory: Path,
    schedule: Schedule | None = None,
    pool: str = WORK_POOL,
    queues: bool = False,
    replace: bool = False,
) -> Deployed:
    """Create a deployment of a flow on a work pool, or replace the one of the same file and name.

    It has one run at a time: a run that is due during another one is cancelled, or waits, as it
    does if all missed runs are to be made up for.

    Args:
        entrypoint: ``package.module:flow``.
        parameters: parameters of the flow, as JSON types with absolute paths.
        schedule: when to run it; None: on demand only.
        pool: the work pool; the default pool is created if it does not exist.
        queues: a run that is due during another one waits.
        replace: also replace a deployment of another file.

    Raises:
        ConfigError: the schedule is invalid, the work pool does not exist, another file has a
            deployment of this name, or the server refuses the credentials.
        LaunchError: Prefect's server is unavailable or refused the deployment, or does not act on
            its schedule.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
    from prefect.flows import Flow, load_flow_from_entrypoint
    from prefect.utilities.callables import parameter_schema

    flow: Flow[..., Any] = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    schedules = [schedule.for_prefect()] if schedule else []
    first = schedule.next_time() if schedule and schedule.active else None
    step = "prefect.deployments.steps.set_working_directory"
    waits = queues or (schedule is not None and schedule.catch_up == "all")
    collision = ConcurrencyLimitStrategy.ENQUEUE if waits else ConcurrencyLimitStrategy.CANCEL_NEW
    once = ConcurrencyOptions(collision_strategy=collision)
    require_server()
    with get_client(sync_client=True) as client:
        server = str(client.api_url)
        try:
            if not replace:
                _refuse_other(client, f"{flow.name}/{name}", parameters["path"])
            has_worker = _ensure_pool(client, pool)
            made = client.create_deployment(
                flow_id=client.create_flow(flow),
                name=name,
                entrypoint=entrypoint,
                parameters=dict(parameters),
                parameter_openapi_schema=parameter_schema(flow).model_dump(exclude_unset=True),
                enforce_parameter_schema=True,
                description=flow.description,
                tags=[schedule.tag] if schedule else [],
                work_pool_name=pool,
                schedules=schedules,
                concurrency_limit=1,
                concurrency_options=once,
                pull_steps=[{step: {"directory": str(directory)}}],
                path=str(directory),
            )
            if first:
                await_scheduled_run(
                    client,
                    made,
                    first,
                    lambda waited: (
                        f"{flow.name}/{name} is deployed, but Prefect's server at {server} runs it "
                        f"only on request, not on schedule: its scheduler did nothing for "
                        f"{waited:g} s; see the errors in {_log_of(server)}"
                    ),
                )
        except HTTPError as error:
            raise LaunchError(f"Prefect's server at {server}: {error}") from error
    catches_up = pool == WORK_POOL and _standing_at(server) is not None
    return Deployed(str(made), f"{flow.name}/{name}", pool, server, first, has_worker, catches_up)


def _refuse_other(client: SyncPrefectClient, name: str, path: str) -> None:
    """Refuse to replace the deployment of another file, whose schedule would be lost."""
    from prefect.exceptions import ObjectNotFound

    try:
        other = client.read_deployment_by_name(name).parameters.get("path")
    except ObjectNotFound:
        return
    if other != path:
        raise ConfigError(
            f"{name} is already the deployment of {other}; choose another name with --name, or "
            "replace it with --replace"
        )


def _log_of(server: str) -> str:
    """Return where to find the log of a server."""
    standing = _standing_at(server)
    return str(standing.server_log) if standing else "the log of that server"


def _standing_at(server: str) -> StandingPrefect | None:
    """Return the server of `vinedresser up`; None if it is not the one with this API."""
    standing = standing_prefect()
    return standing if standing and server.startswith(f"{standing.url}/") else None


def _ensure_pool(client: Any, pool: str) -> bool:
    """Create the default pool if it does not exist; return whether a worker polls the pool."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.client.schemas.objects import WorkPoolStatus
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    try:
        return bool(client.read_work_pool(pool).status != WorkPoolStatus.NOT_READY)
    except ObjectNotFound as error:
        if pool != WORK_POOL:
            raise ConfigError(
                f"no such work pool: {pool!r}; create it with `prefect work-pool create`"
            ) from error
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    return False
