"""Prefect deployments of vinedresser's flows: schedule, work pool and concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.servers import WORK_POOL

__all__ = ["Deployed", "Schedule", "make_deployment"]


@dataclass(frozen=True)
class Schedule:
    """The schedule of a flow.

    Attributes:
        cron: five fields: minute, hour, day of the month, month, day of the week.
        timezone: the time zone of the fields, such as ``Europe/Vienna``.
        active: whether the schedule creates runs.
    """

    cron: str
    timezone: str = "UTC"
    active: bool = True


@dataclass(frozen=True)
class Deployed:
    """A deployment registered with Prefect.

    Attributes:
        id: Prefect's id.
        name: ``FLOW/NAME``, as Prefect's commands expect it.
        pool: the work pool whose worker runs it.
        server: URL of Prefect's API.
    """

    id: str
    name: str
    pool: str
    server: str


def make_deployment(
    entrypoint: str,
    name: str,
    parameters: Mapping[str, Any],
    *,
    directory: Path,
    schedule: Schedule | None = None,
    pool: str = WORK_POOL,
) -> Deployed:
    """Create a deployment of a flow on a work pool, or replace the one of the same name.

    It has one run at a time: a run that is due during another one is cancelled.

    Args:
        entrypoint: ``package.module:flow``.
        name: name of the deployment.
        parameters: parameters of the flow, as JSON types with absolute paths.
        directory: working directory of the flow.
        schedule: when to run it; None: on demand only.
        pool: the work pool; the default pool is created if it does not exist.

    Raises:
        ConfigError: the schedule is invalid, or the work pool does not exist.
        LaunchError: Prefect's server is unavailable or refused the deployment.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
    from prefect.flows import Flow, load_flow_from_entrypoint
    from prefect.utilities.callables import parameter_schema

    flow: Flow[..., Any] = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    schedules = [_schedule(schedule)] if schedule else []
    step = "prefect.deployments.steps.set_working_directory"
    once = ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    with get_client(sync_client=True) as client:
        server = str(client.api_url)
        try:
            _ensure_pool(client, pool)
            made = client.create_deployment(
                flow_id=client.create_flow(flow),
                name=name,
                entrypoint=entrypoint,
                parameters=dict(parameters),
                parameter_openapi_schema=parameter_schema(flow).model_dump(exclude_unset=True),
                enforce_parameter_schema=True,
                description=flow.description,
                work_pool_name=pool,
                schedules=schedules,
                concurrency_limit=1,
                concurrency_options=once,
                pull_steps=[{step: {"directory": str(directory)}}],
                path=str(directory),
            )
        except HTTPError as error:
            raise LaunchError(f"Prefect's server at {server}: {error}") from error
    return Deployed(str(made), f"{flow.name}/{name}", pool, server)


def _schedule(schedule: Schedule) -> Any:
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        when = CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
    except ValidationError as error:
        said = error.errors()[0]
        key = said["loc"][-1] if said["loc"] else "cron"
        why = said["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{key} {getattr(schedule, str(key))!r}: {why}") from error
    return DeploymentScheduleCreate(schedule=when, active=schedule.active)


def _ensure_pool(client: Any, pool: str) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    try:
        client.read_work_pool(pool)
    except ObjectNotFound as error:
        if pool != WORK_POOL:
            raise ConfigError(
                f"no such work pool: {pool!r}; create it with `prefect work-pool create`"
            ) from error
        try:
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        except ObjectAlreadyExists:
            return
