"""Prefect events of a monitor, and the automation that has a deployment explain its alerts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from vinedresser.errors import LaunchError

__all__ = ["emit_alert", "emit_answer", "explain_alerts"]

_EVENT = "vinedresser.drift"
_ANSWER = "vinedresser.monitor"
# Prefect's form of a value that its server takes from the event.
_FROM_EVENT = {"__prefect_kind": "jinja", "template": "{{ event.payload.alert }}"}


def emit_alert(name: str, folder: Path, alert: str, text: str) -> None:
    """Send the event of an alert, and wait until Prefect's server has it.

    The server may lose what it has before it acts on it: an alert without an explanation is sent
    again later, as another event, and explained once.

    Args:
        name: name of the monitor.
        folder: folder of its state, which identifies it.
        alert: id of the alert.
        text: what it is about.

    Raises:
        LaunchError: the server did not accept it.
    """
    _emit(_EVENT, name, folder, {"alert": alert, "text": text, "answer": "drift"})


def emit_answer(name: str, folder: Path, answer: Mapping[str, Any]) -> None:
    """Send the event of another answer, and wait until Prefect's server has it.

    It is called ``vinedresser.monitor.drift``, ``vinedresser.monitor.no-drift-seen`` or
    ``vinedresser.monitor.cannot-tell``.

    Args:
        name: name of the monitor.
        folder: folder of its state, which identifies it.
        answer: the answer and what belongs to it, of JSON types; the event's payload.

    Raises:
        LaunchError: the server did not accept it.
    """
    event = f"{_ANSWER}.{str(answer['answer']).replace(' ', '-')}"
    _emit(event, name, folder, dict(answer))


def _emit(kind: str, name: str, folder: Path, payload: dict[str, Any]) -> None:
    """Send an event."""
    from httpx import HTTPError
    from prefect.events import Event, get_events_client
    from websockets.exceptions import WebSocketException

    event = Event.model_validate(
        {
            "occurred": datetime.now(UTC),
            "event": kind,
            "resource": {"prefect.resource.id": _resource(folder), "prefect.resource.name": name},
            "payload": payload,
        }
    )

    async def send() -> None:
        # A checkpoint after each event is the server's answer that it has it.
        async with get_events_client(2, checkpoint_every=1) as client:
            await client.emit(event)

    try:
        asyncio.run(send())
    except (HTTPError, OSError, WebSocketException) as error:
        raise LaunchError(f"Prefect's server did not accept an event: {name}: {error}") from error


def explain_alerts(name: str, folder: Path, deployment: str) -> None:
    """Have Prefect's server run a deployment for each alert of a monitor.

    The deployment's parameter ``alert`` is the id of the alert. An automation of the same name is
    replaced.

    Args:
        folder: folder of its state, which identifies it.
        deployment: id of the deployment.

    Raises:
        LaunchError: the server is unavailable or refused.
    """
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.events import AutomationCore, EventTrigger, Posture, RunDeployment

    automation = AutomationCore(
        name=f"explain {name} ({_resource(folder).rpartition('.')[2][:8]})",
        description=f"Explains the drift alerts of {name}",
        trigger=EventTrigger(
            expect={_EVENT},
            match={"prefect.resource.id": _resource(folder)},
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=UUID(deployment),
                parameters={"alert": _FROM_EVENT},
                job_variables=None,
            )
        ],
    )
    with get_client(sync_client=True) as client:
        try:
            for old in client.read_automations_by_name(automation.name):
                client.delete_automation(old.id)
            client.create_automation(automation)
        except HTTPError as error:
            raise LaunchError(f"Prefect's server at {client.api_url}: {error}") from error


def _resource(folder: Path) -> str:
    # A name could have wildcards, and several folders have monitors of one name.
    return f"vinedresser.monitor.{hashlib.sha256(str(folder).encode()).hexdigest()[:32]}"
