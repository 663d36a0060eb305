"""A record of each flow run that works on a store, by which the next one notices a killed one.

The records are in this user's state folder (`stores.private_state`), since they say what is to be
killed: files in a store may come from others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from vinedresser.infra.catalog.stores import private_state
from vinedresser.objects import LocalStorage, Location, Storage
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import Record, write_record

__all__ = ["FlowRecord", "dead_flows", "dead_in", "forget_flow", "note_flow"]


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
        store: location of the store.
    """

    KEY: ClassVar[str] = "flows"

    id: str
    name: str
    marker: str
    process: dict[str, Any]
    server: str = ""
    store: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process, or not an id of Prefect."""
        ProcessIdentity(**self.process)
        UUID(self.id)


def note_flow(store: Location, record: FlowRecord) -> None:
    """Keep a record that a process runs a flow run on a store.

    Raises:
        StoreError: the folder cannot be written.
    """
    write_record(LocalStorage(private_state(store)), record, key=_key(record))


def forget_flow(store: Location, record: FlowRecord) -> None:
    """Remove the record of a flow run that has ended or was marked as crashed.

    Raises:
        StoreError: the folder cannot be written.
    """
    LocalStorage(private_state(store)).delete(_key(record))


def dead_flows(store: Location, faults: list[str]) -> list[FlowRecord]:
    """Return the flow runs on a store whose process is gone.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the folder cannot be read.
    """
    return dead_in(LocalStorage(private_state(store)), faults)


def dead_in(storage: Storage, faults: list[str]) -> list[FlowRecord]:
    """Return the flow runs whose process is gone, of the records in a folder; see `dead_flows`."""
    keys = [key for key in storage.list(f"{FlowRecord.KEY}/") if key.endswith(".json")]
    found = (read_record_or_none(storage, FlowRecord, key, faults) for key in keys)
    records = [record for record in found if record is not None]
    return [record for record in records if is_alive(ProcessIdentity(**record.process)) is False]


def _key(record: FlowRecord) -> str:
    return f"{FlowRecord.KEY}/{record.id}.json"
