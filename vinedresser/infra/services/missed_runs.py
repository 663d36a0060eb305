"""Runs whose times have passed while no worker of `vinedresser up` could start them.

Prefect plans the next times of a schedule, at least three of them and an hour, and none of the
past. So the last of a long outage have no run, and are planned here. What Prefect would do with
those that it has planned depends on the worker: with one slot it starts all of them, with more it
starts the oldest and cancels the others. As soon as the server runs again, and before there is a
worker, it also cancels runs that are late while the slot of their deployment is still taken, as by
a run that died with the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.scheduling import catch_up_of
from vinedresser.infra.services.servers import WORK_POOL, StandingPrefect
from vinedresser.infra.services.servers.prefect_api import ask_prefect
from vinedresser.objects.retrying import backoff, retry

_Ask = Callable[[str, str, object], Any]
_Json = dict[str, Any]

# Seconds that a request may take: the server has just started.
_TIMEOUT = 60.0
# Seconds during which a request is repeated that had no answer in time: transactions of Prefect
# that wait for each other hold its database until one of them gives up, after a minute.
_PATIENCE = 180.0
# Maximum length of a list that the server returns, and of times that it plans at once.
_PAGE = 200
# A slot of a run that died is released after five minutes at most.
_SLOT = timedelta(seconds=330)
# A worker takes runs that are due within this time.
_PREFETCH = timedelta(seconds=10)
# Where the server notes why it cancelled a run.
_SLOT_TAKEN = "concurrency limit reached"


def catch_up(server: StandingPrefect, say: Callable[[str], object]) -> None:
    """Have missed runs started or left out, as the ``catch_up`` of their deployments says.

    Call it while no worker is at work. Only runs of schedules that never began are left out: they
    become Cancelled in Prefect. Deployments of other flows are left alone.

    Args:
        server: the running server.
        say: is called with a sentence for each deployment that missed a run.

    Raises:
        LaunchError: the server does not answer, or refused.
    """
    ask = partial(_ask_again, server)
    now = datetime.now(UTC)
    pool = {"work_pools": {"name": {"any_": [WORK_POOL]}}}
    try:
        for deployment in [*_pages(ask, "deployments/filter", pool)]:
            if str(deployment["entrypoint"]).startswith("vinedresser.flows."):
                _catch_up(ask, deployment, now, say)
    except OSError as error:
        raise LaunchError(f"Prefect's server at {server.url}: {error}") from error


def _ask_again(server: StandingPrefect, method: str, path: str, body: object) -> Any:
    """Send a request, and again if it was not answered in time: each of this file may be."""
    return retry(
        lambda: ask_prefect(server.url, server.password, method, path, body, timeout=_TIMEOUT),
        TimeoutError,
        backoff(0.25, 4.0),
        timeout=_PATIENCE,
    )


def _catch_up(ask: _Ask, deployment: _Json, now: datetime, say: Callable[[str], object]) -> None:
    """Have the missed runs of a deployment started or left out, and say so."""
    planned = _missed(ask, deployment, now)
    if not planned:
        return
    flow = ask("GET", f"flows/{deployment['flow_id']}", None)
    name = f"{flow['name']}/{deployment['name']}"
    try:
        policy = catch_up_of(deployment["tags"])
    except ConfigError as error:
        say(f"{name}: tag {error}; its missed runs are left to Prefect")
        return
    others = [one for plan in _unplanned(deployment, planned, now) for one in plan]
    times = sorted([*map(_time, planned), *others])
    if policy == "all":
        _plan(ask, deployment, sorted(set(others)))
    elif policy == "last" and times[-1] in others:
        _plan(ask, deployment, times[-1:])
    runs = sorted(_missed(ask, deployment, now), key=_time)
    kept = {"last": runs[-1:], "all": runs, "none": []}[policy]
    left_out = {
        "type": "CANCELLED",
        "name": "Missed",
        "message": f'No worker was running at its time; left out: catch_up = "{policy}".',
    }
    for run in runs[: len(runs) - len(kept)]:
        _set_state(ask, run, left_out)
    begin, due = now, "now"
    limit = deployment["global_concurrency_limit"]
    if policy == "last" and limit and limit["active_slots"] >= limit["limit"]:
        # Prefect would cancel it at once.
        begin = now + _SLOT
        due = f"at {_local(begin, deployment)}, since the slot of an earlier run is still taken"
    for run in kept:
        if begin > now or run["state_type"] == "CANCELLED":
            _schedule(ask, run, begin)
    first, last = (_local(one, deployment) for one in (times[0], times[-1]))
    missed = f"1 run was missed, at {last}"
    if len(times) > 1:
        missed = f"{len(times)} runs were missed, from {first} to {last}"
    say(f'{name}: {missed}; {_outcome(len(times), len(kept), due)} (catch_up = "{policy}")')


def _outcome(missed: int, kept: int, due: str) -> str:
    """Return what becomes of missed runs, as a sentence."""
    left = missed - kept
    if missed == 1:
        return f"it is due {due}" if kept else "it is left out"
    if not left or not kept:
        return f"all are due {due}, one after another" if kept else "all are left out"
    started = "the last one is" if kept == 1 else f"{kept} of them are"
    return f"{started} due {due}, {left} {'is' if left == 1 else 'are'} left out"


def _missed(ask: _Ask, deployment: _Json, now: datetime) -> list[_Json]:
    """Return the runs of a deployment's schedules that are due and have never begun."""
    # A run that is to be retried, or was resumed, has another name.
    names = ["Scheduled", "Late", "AwaitingConcurrencySlot"]
    due = {
        "state": {"type": {"any_": ["SCHEDULED"]}, "name": {"any_": names}},
        # A person may have put off the time at which it was expected.
        "next_scheduled_start_time": {"before_": now.isoformat()},
        "start_time": {"is_null_": True},
    }
    # A run that was due before has been in the hands of a worker.
    polled = deployment["last_polled"]
    after = datetime.fromisoformat(polled) + _PREFETCH if polled else datetime.min
    cancelled = {
        "state": {"name": {"any_": ["Cancelled"]}},
        "expected_start_time": {"after_": after.isoformat()},
    }
    found = []
    for kind in (due, cancelled):
        of_deployment = {**kind, "deployment_id": {"any_": [deployment["id"]]}}
        wanted = {"flow_runs": of_deployment, "sort": "ID_DESC"}
        found += [*_pages(ask, "flow_runs/filter", wanted)]
    return [
        run
        for run in found
        if run["auto_scheduled"]
        and (run["state_type"] != "CANCELLED" or _SLOT_TAKEN in (run["state"]["message"] or ""))
    ]


def _unplanned(
    deployment: _Json, planned: Sequence[_Json], now: datetime
) -> Iterator[list[datetime]]:
    """Yield for each schedule the times that have passed since the last one with a run."""
    for schedule in deployment["schedules"]:
        # Earlier versions of Prefect did not note the schedule.
        by = [(run, (run["created_by"] or {}).get("id")) for run in planned]
        times = [_time(run) for run, one in by if one == schedule["id"]]
        if times and schedule["active"]:
            yield _passed(schedule["schedule"], max(times), now)


def _passed(schedule: Mapping[str, Any], after: datetime, now: datetime) -> list[datetime]:
    """Return the times of a schedule after a time, up to now."""
    from prefect.server.schemas.schedules import SCHEDULE_TYPES
    from pydantic import TypeAdapter

    dates = TypeAdapter[Any](SCHEDULE_TYPES).validate_python(schedule).get_dates
    times: list[datetime] = []
    while True:
        start = times[-1] if times else after
        further = [
            one.astimezone(UTC) for one in asyncio.run(dates(_PAGE, start, now)) if one > start
        ]
        if not further:
            return times
        times += further


def _plan(ask: _Ask, deployment: _Json, times: Sequence[datetime]) -> None:
    """Have the server plan runs of a deployment's schedules at past times."""
    for begin in range(0, len(times), _PAGE):
        page = times[begin : begin + _PAGE]
        wanted = {
            "start_time": page[0].isoformat(),
            "end_time": page[-1].isoformat(),
            "min_time": 0.0,
            "min_runs": len(page),
            "max_runs": len(page),
        }
        ask("POST", f"deployments/{deployment['id']}/schedule", wanted)


def _schedule(ask: _Ask, run: _Json, when: datetime) -> None:
    """Have a run begin at a time."""
    details = {"scheduled_time": when.isoformat()}
    _set_state(ask, run, {"type": "SCHEDULED", "state_details": details})


def _set_state(ask: _Ask, run: _Json, state: _Json) -> None:
    """Put a run into a state, also if the server's database is locked for a while."""

    def send() -> None:
        answer = ask("POST", f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
        if answer["status"] != "ACCEPT":
            reason = answer["details"].get("reason") or "without a reason"
            raise LaunchError(
                f"Prefect's server does not put flow run {run['id']} into state "
                f"{state.get('name', state['type'])}: {answer['status']}, {reason}"
            )

    retry(send, LaunchError, backoff(0.25, 4.0), timeout=_TIMEOUT)


def _pages(ask: _Ask, path: str, wanted: _Json) -> Iterator[_Json]:
    """Yield everything that the server finds."""
    found = 0
    while page := ask("POST", path, {**wanted, "limit": _PAGE, "offset": found}):
        yield from page
        found += len(page)


def _time(run: _Json) -> datetime:
    """Return the time at which a run was expected."""
    return datetime.fromisoformat(run["expected_start_time"])


def _local(when: datetime, deployment: _Json) -> str:
    """Return a time in the time zone of a deployment's schedule."""
    zones = [one["schedule"].get("timezone") for one in deployment["schedules"]]
    zone = next(filter(None, zones), "UTC")
    return f"{when.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M %Z}"
