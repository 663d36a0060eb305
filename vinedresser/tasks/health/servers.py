"""Checks of the servers that run until they are stopped: Prefect with its worker, and S3."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, LaunchError
from vinedresser.infra.services.prefect_environment import require_server
from vinedresser.infra.services.prefect_settings import has_server
from vinedresser.infra.services.scheduling import check_scheduler
from vinedresser.infra.services.servers import (
    WORK_POOL,
    StandingPrefect,
    noted_prefect,
    noted_server,
)
from vinedresser.infra.services.servers.prefect_api import ask_prefect
from vinedresser.masking import masked_text
from vinedresser.processes import is_suspended
from vinedresser.tasks.health.check import Check, CheckState, unless_it_fails
from vinedresser.tasks.health.machine import space_check

_AREA = "servers"
# Seconds that a server has to answer: a busy one takes some.
_PATIENCE = 10.0
_AGAIN = "vinedresser down; vinedresser up"
_LATE = {"flow_runs": {"state": {"name": {"any_": ["Late"]}}}}


def server_checks(*, scheduler: bool) -> Iterator[Check]:
    """Yield the checks of the servers that this user has started, or configured.

    Args:
        scheduler: also try whether the scheduler makes runs, which takes seconds, or a minute if it
            does not.
    """
    yield from unless_it_fails(_AREA, "Prefect", partial(_prefect, scheduler=scheduler))
    yield from unless_it_fails(_AREA, "S3", _s3)


def _prefect(*, scheduler: bool) -> Iterator[Check]:
    standing = noted_prefect()
    named = os.environ.get("PREFECT_API_URL", "")
    if standing is not None:
        yield from _standing(standing, scheduler=scheduler)
    if has_server() and not (standing is not None and named == f"{standing.url}/api"):
        yield _configured(named)
    elif standing is None:
        yield Check(_AREA, "Prefect", "ok", "none stands; each flow starts one of its own")


def _configured(named: str) -> Check:
    """Return whether the server of ``PREFECT_API_URL``, or of Prefect's profile, can be used."""
    subject = f"Prefect at {masked_text(named)}" if named else "Prefect of your profile"
    try:
        require_server(_PATIENCE)
    except ConfigError as error:
        return Check(_AREA, subject, "problem", str(error), "correct its address or credentials")
    except LaunchError as error:
        return Check(_AREA, subject, "problem", str(error), "start it, or unset PREFECT_API_URL")
    return Check(_AREA, subject, "ok", "answers, and takes the credentials")


def _standing(standing: StandingPrefect, *, scheduler: bool) -> Iterator[Check]:
    """Yield the checks of the server of `vinedresser up`."""
    subject = f"Prefect at {standing.url}"
    if not standing.server_lives:
        seen = "its process is gone"
        if _is_taken(standing.url):
            seen += ", and something else listens at its port"
        yield Check(_AREA, subject, "problem", seen, "vinedresser up")
        return
    try:
        ask = partial(ask_prefect, standing.url, standing.password, timeout=_PATIENCE)
        ask("GET", "ready")
        yield Check(_AREA, subject, "ok", "answers, and has its database")
        yield from _version(ask("GET", "admin/version"))
        yield from _worker(standing, ask("GET", f"work_pools/{WORK_POOL}"))
        late = ask("POST", "flow_runs/count", _LATE)
    except urllib.error.HTTPError as error:
        refused = error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        seen = "refuses its password" if refused else f"answers {error.code} {error.reason}"
        remedy = f"see {standing.server_log}; {_AGAIN}"
        yield Check(_AREA, subject, "problem", seen, _AGAIN if refused else remedy)
        return
    except OSError as error:
        seen = f"does not answer within {_PATIENCE:g} s: {error}"
        yield Check(_AREA, subject, "problem", seen, f"see {standing.server_log}; {_AGAIN}")
        return
    if late:
        seen = f"{late} are late: {standing.limit} may run at a time"
        remedy = "wait, or start the servers again with a greater --limit"
        yield Check(_AREA, "flow runs", "warning", seen, remedy)
    if scheduler:
        yield _scheduler(standing)
    yield space_check("data of Prefect", standing.home, _AREA)


def _version(served: str) -> Iterator[Check]:
    """Yield that a server is of another version than the package, as after an upgrade."""
    installed = metadata.version("prefect")
    if served != installed:
        seen = f"version {served} runs, and {installed} is installed"
        yield Check(_AREA, "Prefect's version", "warning", seen, _AGAIN)


def _worker(standing: StandingPrefect, pool: dict[str, Any]) -> Iterator[Check]:
    """Yield whether the worker polls.

    Args:
        standing: the server.
        pool: the work pool, as Prefect's API gives it.
    """
    state: CheckState = "problem"
    remedy = "vinedresser up"
    if pool["is_paused"]:
        seen, remedy = "its work pool is paused", f"prefect work-pool resume {WORK_POOL}"
    elif not standing.worker_lives:
        seen = "its process is gone"
    elif is_suspended(standing.worker["pid"]):
        seen, remedy = "is stopped by a signal", f"kill -CONT {standing.worker['pid']}"
    elif pool["status"] != "READY":
        seen, remedy = "has not polled for over a minute", _AGAIN
    else:
        state, seen, remedy = "ok", "polls for flow runs", ""
    yield Check(_AREA, "Prefect's worker", state, seen, remedy)


def _scheduler(standing: StandingPrefect) -> Check:
    try:
        check_scheduler(standing)
    except LaunchError as error:
        return Check(_AREA, "Prefect's scheduler", "problem", str(error), _AGAIN)
    return Check(_AREA, "Prefect's scheduler", "ok", "makes runs of schedules")


def _s3() -> Iterator[Check]:
    standing = noted_server()
    if standing is None:
        return
    subject = f"S3 at {standing.url}" if standing.url else "S3"
    again = "vinedresser down; vinedresser up --s3"
    if not standing.lives:
        yield Check(_AREA, subject, "problem", "its process is gone", "vinedresser up --s3")
        return
    try:
        urllib.request.urlopen(standing.url, timeout=_PATIENCE).close()  # noqa: S310 - loopback
    except urllib.error.HTTPError as error:
        # Without credentials it refuses.
        if error.code != HTTPStatus.FORBIDDEN:
            seen = f"answers {error.code} {error.reason}"
            yield Check(_AREA, subject, "problem", seen, again)
            return
    except OSError as error:
        seen = f"does not answer within {_PATIENCE:g} s: {error}"
        yield Check(_AREA, subject, "problem", seen, again)
        return
    yield Check(_AREA, subject, "ok", "answers")
    yield space_check("data of S3", Path(standing.data), _AREA)


def _is_taken(url: str) -> bool:
    """Return whether something listens at an address on this machine."""
    host, _, port = url.rpartition("/")[2].partition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0
