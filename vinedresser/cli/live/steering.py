"""`vinedresser set`, `pause`, `resume`, `stop`, `checkpoint`, `snapshot`: steer a training."""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vinedresser.cli.options import RunArgument, check_number
from vinedresser.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vinedresser.store.records import TrainerRequest, TrainerRequestKind

__all__ = [
    "PATIENCE",
    "checkpoint",
    "pause",
    "resume",
    "send_request",
    "set_parameters",
    "snapshot",
    "stop",
]

_Timeout = Annotated[
    float,
    typer.Option(callback=check_number, help="Seconds to wait for the training to respond."),
]
PATIENCE = 30.0
"""Seconds to wait for the training to respond."""
_EVENTS = {"next-epoch": "epoch"}


def set_parameters(
    run: RunArgument,
    changes: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="New values, such as lr=0.01.")
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="next-epoch|step N",
            help="When to make the change (default: after the current step).",
        ),
    ] = None,
    checkpoint_first: Annotated[
        bool, typer.Option("--checkpoint-first", help="Save a checkpoint before the change.")
    ] = False,
    timeout: _Timeout = PATIENCE,
) -> None:
    """Change parameters of a running training.

    The script must have declared them with hook.tunable. The change is made once, between two
    steps, and recorded in the run. Several are made between the same two steps, each on its own: if
    one is refused, the others are made.
    """
    values: dict[str, float] = {}
    for name, value in map(_assignment, changes):
        if name in values:
            raise ConfigError(f"{name}: is given twice")
        values[name] = value
    when = _when(at)
    requests = [
        _request(
            "adjust",
            parameter=name,
            value=value,
            checkpoint_first=checkpoint_first,
            **when,
        )
        for name, value in values.items()
    ]
    _send(run, requests, timeout)


def pause(
    run: RunArgument,
    *,
    seconds: Annotated[
        float, typer.Option("--for", metavar="SECONDS", help="Resume after this time.")
    ] = 3600.0,
    timeout: _Timeout = PATIENCE,
) -> None:
    """Let a running training wait after its current step.

    The script must have declared a tunable parameter, or control = true.
    """
    from vinedresser.capture.requests.pausing import check_pause

    send_request(run, "pause", timeout, seconds=check_pause(seconds))


def resume(run: RunArgument, *, timeout: _Timeout = PATIENCE) -> None:
    """Let a paused training continue."""
    send_request(run, "resume", timeout)


def checkpoint(run: RunArgument, *, timeout: _Timeout = PATIENCE) -> None:
    """Save a checkpoint of a running training after its current step."""
    send_request(run, "checkpoint", timeout)


def snapshot(run: RunArgument, *, timeout: _Timeout = PATIENCE) -> None:
    """Take a snapshot of the next step of a running training, to replay it."""
    send_request(run, "snapshot", timeout)


def stop(run: RunArgument, *, timeout: _Timeout = PATIENCE) -> None:
    """Stop a running training after its current step, with a checkpoint.

    A script without a supervisor must have declared a tunable parameter, or control = true.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.infra.supervise.launcher.stopping import request_stop
    from vinedresser.objects import open_storage
    from vinedresser.store.records import SupervisorRecord
    from vinedresser.store.status import run_status

    storage = open_storage(run)
    if not storage.exists(SupervisorRecord.KEY):
        send_request(run, "stop", timeout)
        return
    status = run_status(storage)
    record = None if status.over else request_stop(run, by="person", reason=_reason("stop"))
    if record is None:
        raise ConfigError(f"{run}: the run is {run_status(storage).state}, not running")
    deadline = time.monotonic() + timeout
    while not (status := run_status(storage)).over and time.monotonic() < deadline:
        time.sleep(0.1)
    say(f"{run}: {status.words if status.over else 'request sent; the training is stopping'}")


def _assignment(text: str) -> tuple[str, float]:
    """Return name and value of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name or not equals or not math.isfinite(number):
        raise ConfigError(f"{text}: must be NAME=NUMBER, such as lr=0.01")
    return name, number


def _when(at: str | None) -> dict[str, Any]:
    """Return the fields of a request for ``--at``."""
    if at is None:
        return {}
    if at in _EVENTS:
        return {"event": _EVENTS[at]}
    number = at.removeprefix("step").strip(" =:")
    if not number.isdecimal():
        raise ConfigError(f"--at: must be next-epoch or 'step N', not {at!r}")
    return {"at": int(number)}


def send_request(run: str, kind: TrainerRequestKind, timeout: float, **fields: Any) -> None:
    """Send a request, and print the answer.

    Raises:
        ConfigError: the run is over, or the training refuses.
    """
    _send(run, [_request(kind, **fields)], timeout)


def _request(kind: TrainerRequestKind, **fields: Any) -> TrainerRequest:
    from vinedresser.store.records import TrainerRequest

    return TrainerRequest(uuid.uuid4().hex, kind, _reason(kind), time.time(), **fields)


def _reason(kind: TrainerRequestKind) -> str:
    """Return what was asked for and who did, for the records of the run."""
    from vinedresser.processes import user_name

    return f"vinedresser {kind}, {user_name() or os.getuid()} on {socket.gethostname()}"


def _send(run: str, requests: Sequence[TrainerRequest], timeout: float) -> None:
    """Send requests together, and print the answers."""
    from vinedresser.capture.requests.requesting import (
        answer_words,
        await_trainer,
        request_trainer,
    )
    from vinedresser.cli.views.console import say
    from vinedresser.objects import open_storage
    from vinedresser.store.status import run_status

    storage = open_storage(run)
    sent = [(one, request_trainer(storage, one)) for one in requests]
    deadline = time.monotonic() + timeout
    refused = []
    for request, number in sent:
        answer = await_trainer(storage, number, max(deadline - time.monotonic(), 0.0))
        if answer is None:
            status = run_status(storage)
            if status.over:
                raise ConfigError(f"{run}: the run is {status.words}; it has not answered")
        if answer is not None and answer.refused:
            refused.append(answer.refused)
        else:
            say(f"{run}: {answer_words(request, answer)}")
    if refused:
        raise ConfigError(f"{run}: refused: {'; '.join(refused)}")
