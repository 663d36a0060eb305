"""Flow runs of this process are recorded, and dead ones set to Crashed in Prefect."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

from vinedresser.errors import LaunchError
from vinedresser.infra.catalog.flow_records import FlowRecord, forget_flow, note_flow
from vinedresser.infra.services.servers import is_private
from vinedresser.masking import masked_text
from vinedresser.objects import Location
from vinedresser.processes import this_process
from vinedresser.store.records import FLOW_VARIABLE

__all__ = [
    "flow_recorded",
    "is_within_reach",
    "keep_flow",
    "mark_crashed",
]

# The last record of this process for each store.
_records: dict[Location, FlowRecord] = {}


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
        os.path.realpath(store) if isinstance(store, Path) else str(store),
    )
    note_flow(store, record)
    _records[store] = record
    try:
        yield record.id
    finally:
        forget_flow(store, record)


def keep_flow(store: Location) -> None:
    """Keep the record of a flow run of this process whose end its Prefect server does not know.

    Raises:
        StoreError: the folder cannot be written.
    """
    if store in _records:
        note_flow(store, _records[store])


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
    # The second from Prefect, of a server that refuses the credentials or does not answer.
    except (HTTPError, RuntimeError) as error:
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
