"""A separate sweep or pruning for each flow run of a deployment, named for its scheduled time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypeVar

from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.objects import LocalStorage
from vinedresser.store.records import Record, write_first
from vinedresser.tasks.config.parent_file import ParentFile

__all__ = ["FlowClaim", "dated"]


P = TypeVar("P", bound=ParentFile)


@dataclass(frozen=True)
class FlowClaim(Record):
    """The flow run that makes a sweep or pruning, in the folder of its state.

    Attributes:
        id: Prefect's id of the flow run.
    """

    KEY: ClassVar[str] = "flow_run.json"

    id: str


def dated(parent: P, flow: str, when: datetime) -> P:
    """Return the sweep or pruning of a flow run, NAME-TIME; the same if the flow run is retried.

    Flow runs that are due in the same second have names of their own: NAME-TIME, NAME-TIME-2 and
    so on.

    Args:
        parent: the sweep or pruning of the file.
        flow: Prefect's id of the flow run.
        when: its scheduled time, in UTC.

    Raises:
        CorruptData: the record of a flow run cannot be read.
        StoreError: the store refused a request.
    """
    mark = f"{when:%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        made = parent.marked(mark if number == 1 else f"{mark}-{number}")
        ensure_store(made.experiment.store)
        if write_first(LocalStorage(made.state), FlowClaim(flow)).id == flow:
            return made
        number += 1
