"""A record of each flow run that works on a store, by which the next one notices a killed one.

The records are in this user's state folder (`stores.private_state`), since they say what is to be
killed: files in a store may come from others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from uuid import UUID

from vinedresser.errors import LaunchError
from vinedresser.infra.servers import is_private
from vinedresser.masking import masked_text
from vinedresser.processes import ProcessIdentity, is_alive, this_process
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import FLOW_VARIABLE, Record, write_record
from vinedresser.store.storage import LocalStorage, Location
from vinedresser.tasks.stores import private_state

__all__ = [
    "FlowRecord",
    "dead_flows",
    "flow_recorded",
    "forget_flow",
    "is_within_reach",
    "mark_crashed",
]


@dataclass(frozen=True)
class FlowRecord(Record):
    """A flow run on a store.

    Attributes:
        id: Prefect's id of the flow run.
        name: Prefect's name of the flow run.
        marker: value of the environment variable that marks its processes, "" if unset.
        process: identity of the process that runs it.
        server: address of the Prefect server that has the flow run, with a masked password; "" if
            that server ended with the process.
    """

    KEY: ClassVar[str] = "flows"

    id: str
    name: str
    marker: str
    process: dict[str, Any]
    server: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process, or not an id of Prefect."""
        ProcessIdentity(**self.process)
        UUID(self.id)


@contextmanager
def flow_recorded(store: Location) -> Iterator[str]:
    """Keep a record that this process runs the current flow run, for the duration of the context.

    Args:
        store: the store on which the flow works.

    Yields:
        Prefect's id of the flow run.

    Raises:
        StoreError: the folder cannot be written.
    """
    from prefect.runtime import flow_run

    record = FlowRecord(
        str(flow_run.id),
        str(flow_run.name),
        os.environ.get(FLOW_VARIABLE, ""),
        asdict(this_process()),
        "" if is_private(_server()) else masked_text(_server()),
    )
    write_record(LocalStorage(private_state(store)), record, key=_key(record))
    try:
        yield record.id
    finally:
        forget_flow(store, record)


def forget_flow(store: Location, record: FlowRecord) -> None:
    """Remove the record of a flow run that has ended or was marked as crashed.

    Raises:
        StoreError: the folder cannot be written.
    """
    LocalStorage(private_state(store)).delete(_key(record))


def dead_flows(store: Location, faults: list[str]) -> list[FlowRecord]:
    """Return the flow runs on a store whose process is gone.

    Args:
        store: the store.
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the folder cannot be read.
    """
    storage = LocalStorage(private_state(store))
    keys = [key for key in storage.list(f"{FlowRecord.KEY}/") if key.endswith(".json")]
    found = (read_record_or_none(storage, FlowRecord, key, faults) for key in keys)
    records = [record for record in found if record is not None]
    return [record for record in records if is_alive(ProcessIdentity(**record.process)) is False]


def _key(record: FlowRecord) -> str:
    return f"{FlowRecord.KEY}/{record.id}.json"


def _server() -> str:
    """Return the address of the Prefect server of this process; "" if there is none."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url or ""


def is_within_reach(record: FlowRecord) -> bool:
    """Return whether this process uses the Prefect server that has a flow run."""
    return record.server == masked_text(_server())


def mark_crashed(record: FlowRecord) -> bool:
    """Set a dead flow run to Crashed in Prefect; return False if it had ended there already.

    Raises:
        LaunchError: the server does not answer or refused.
    """
    from httpx import HTTPError

    try:
        return _mark_crashed(record)
    except HTTPError as error:
        raise LaunchError(f"Prefect's server at {record.server}: {error}") from error


def _mark_crashed(record: FlowRecord) -> bool:
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
