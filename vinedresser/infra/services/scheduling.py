"""Schedules of Prefect's, and the check that its server acts on them.

The scheduler is a service of the server that may fail alone: then the server still answers and runs
deployments on request, but creates no run of a schedule, and only its log shows why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.servers import StandingPrefect

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

__all__ = ["Schedule", "await_scheduled_run", "catch_up_of", "check_scheduler"]

# Seconds to wait for a scheduled run, and between two looks. The scheduler looks for new schedules
# every 5 s; on a busy machine it takes longer.
_PATIENCE, _LOOK = 60.0, 0.5
# A server plans this far ahead by default, less a day for its clock and time zone.
_HORIZON = timedelta(days=99)
_CATCH_UP = ("last", "all", "none")
# A deployment's tag with this prefix says which missed runs to make up for.
_TAG = "catch_up="


@dataclass(frozen=True)
class Schedule:
    """The schedule of a flow.

    Attributes:
        cron: five fields: minute, hour, day of the month, month, day of the week.
        timezone: the time zone of the fields, such as ``Europe/Vienna``.
        active: whether the schedule creates runs.
        catch_up: which of the runs that are missed while no worker runs `vinedresser up` has
            started later: the ``last`` one, ``all``, or ``none``.
    """

    cron: str
    timezone: str = "UTC"
    active: bool = True
    catch_up: str = "last"

    def __post_init__(self) -> None:
        """Refuse an invalid ``catch_up``.

        Raises:
            ConfigError: the policy is unknown.
        """
        if self.catch_up not in _CATCH_UP:
            raise ConfigError(f"catch_up {self.catch_up!r}: must be last, all or none")

    @property
    def tag(self) -> str:
        """The tag of a deployment that has this ``catch_up``; see `catch_up_of`."""
        return f"{_TAG}{self.catch_up}"

    def for_prefect(self) -> Any:
        """Return Prefect's form of the schedule, a ``DeploymentScheduleCreate``.

        Raises:
            ConfigError: the fields or the time zone are invalid.
        """
        from prefect.client.schemas.actions import DeploymentScheduleCreate
        from prefect.client.schemas.schedules import CronSchedule
        from pydantic import ValidationError

        try:
            when = CronSchedule(cron=self.cron, timezone=self.timezone)
        except ValidationError as error:
            said = error.errors()[0]
            key = said["loc"][-1] if said["loc"] else "cron"
            why = said["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{key} {getattr(self, str(key))!r}: {why}") from error
        return DeploymentScheduleCreate(schedule=when, active=self.active)

    def next_time(self) -> datetime:
        """Return the next time of the schedule, in its time zone.

        Raises:
            ConfigError: there is none.
        """
        from prefect.server.schemas.schedules import CronSchedule

        schedule = CronSchedule(cron=self.cron, timezone=self.timezone)
        try:
            [when] = asyncio.run(schedule.get_dates(1))
        except ValueError as error:
            raise ConfigError(f"cron {self.cron!r}: {error}") from error
        return when


def catch_up_of(tags: Iterable[str]) -> str:
    """Return which missed runs of a deployment to make up for; without a tag the last one.

    Raises:
        ConfigError: the tag names no policy.
    """
    said = [tag.removeprefix(_TAG) for tag in tags if tag.startswith(_TAG)]
    if set(said) - {*_CATCH_UP} or len(said) > 1:
        raise ConfigError(f"{_TAG}{','.join(said)}: must be last, all or none")
    return said[0] if said else "last"


def await_scheduled_run(
    client: SyncPrefectClient, deployment: UUID, when: datetime, problem: Callable[[float], str]
) -> None:
    """Wait until the server has created a run of a deployment's schedule.

    Returns at once if the next time is further ahead than a server plans.

    Args:
        deployment: id of the deployment, just created with an active schedule.
        when: the next time of the schedule.
        problem: returns the message of the error, given the number of seconds waited.

    Raises:
        LaunchError: the server created none within a minute.
    """
    from prefect.client.schemas.filters import FlowRunFilter

    if when - datetime.now(UTC) > _HORIZON:
        return
    wanted = FlowRunFilter.model_validate(
        {"deployment_id": {"any_": [deployment]}, "expected_start_time": {"after_": when}}
    )
    deadline = time.monotonic() + _PATIENCE
    while not any(run.auto_scheduled for run in client.read_flow_runs(flow_run_filter=wanted)):
        if time.monotonic() > deadline:
            raise LaunchError(problem(_PATIENCE))
        time.sleep(_LOOK)


def check_scheduler(server: StandingPrefect) -> None:
    """Check that a server acts on schedules, by means of a deployment that is deleted again.

    Args:
        server: a running server.

    Raises:
        LaunchError: it created no run within a minute, or refused a request.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import SyncPrefectClient

    # Soon enough to be planned, too late to be due; and it has no work pool that would run it.
    day = datetime.now(UTC) + timedelta(days=30)
    schedule = Schedule(f"0 0 {min(day.day, 28)} {day.month} *")
    with SyncPrefectClient(f"{server.url}/api", auth_string=server.password) as client:
        try:
            flow = client.create_flow_from_name(f"vinedresser-scheduler-check-{uuid4().hex[:8]}")
            try:
                deployment = client.create_deployment(
                    flow_id=flow, name="check", schedules=[schedule.for_prefect()]
                )
                await_scheduled_run(
                    client,
                    deployment,
                    schedule.next_time(),
                    lambda waited: (
                        f"Prefect's server at {server.url} runs deployments only on request, not "
                        f"on schedule: its scheduler did nothing for {waited:g} s; see the errors "
                        f"in {server.server_log}"
                    ),
                )
            finally:
                client.delete_flow(flow)
        except HTTPError as error:
            raise LaunchError(f"Prefect's server at {server.url}: {error}") from error
