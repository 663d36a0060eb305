"""Which flow runs work on a store: a record each, so that a killed one is noticed by the next.

They lie in the folder of the store's state on this machine (`stores.local_state`).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.records import FLOW_VARIABLE
from vinedresser.store.storage import LocalStorage

__all__ = [
    "FlowRecord",
    "dead_flows",
    "forget_flow",
    "mark_crashed",
    "remember_flow",
]

_FOLDER = ".vinedresser/flows"


@dataclass(frozen=True)
class FlowRecord:
    """A flow run on a store.

    Attributes:
        id: Prefect's id of the flow run.
        name: Prefect's name of the flow run.
        marker: value of the environment variable by which its processes are known, "" if unset.
        process: identity of the process that runs it.
    """

    id: str
    name: str
    marker: str
    process: dict[str, Any]


def remember_flow(state: Path, flow_run_id: str, name: str) -> FlowRecord:
    """Note that this process runs a flow on a store.

    Raises:
        StoreError: the store refused.
    """
    record = FlowRecord(
        flow_run_id, name, os.environ.get(FLOW_VARIABLE, ""), asdict(this_process())
    )
    text = json.dumps(asdict(record), indent=1)
    LocalStorage(state).put(f"{_FOLDER}/{flow_run_id}.json", [text.encode()])
    return record


def forget_flow(state: Path, record: FlowRecord) -> None:
    """Remove the note: the flow has ended, or was marked as crashed.

    Raises:
        StoreError: the store refused.
    """
    LocalStorage(state).delete(f"{_FOLDER}/{record.id}.json")


def dead_flows(state: Path) -> list[FlowRecord]:
    """Return the flow runs on a store whose process is gone.

    Raises:
        StoreError: the store refused.
    """
    storage = LocalStorage(state)
    records = [FlowRecord(**json.loads(storage.get(key))) for key in storage.list(f"{_FOLDER}/")]
    return [record for record in records if is_alive(ProcessIdentity(**record.process)) is False]


def mark_crashed(record: FlowRecord) -> bool:
    """Set a dead flow run that Prefect believes to be running to Crashed.

    Returns:
        Whether there was anything to set.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(record.id))
        except ObjectNotFound:
            return False
        if run.state is not None and run.state.is_final():
            return False
        client.set_flow_run_state(
            run.id, Crashed(message="The process that ran the flow is gone."), force=True
        )
    return True
