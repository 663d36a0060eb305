"""A separate sweep or pruning for each flow run of a deployment, named for its scheduled time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypeVar

from vinedresser.store.records import Record, write_first
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.config.parent_file import ParentFile
from vinedresser.tasks.stores import ensure_store

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


def dated(load: Callable[..., P], flow: str, when: datetime) -> P:
    """Return what a flow run makes, NAME-TIME; the same if the flow run is retried.

    Flow runs that are due in the same second have names of their own: NAME-TIME, NAME-TIME-2 and
    so on.

    Args:
        load: reads the file; its argument ``mark`` is the suffix of the name.
        flow: Prefect's id of the flow run.
        when: its scheduled time, in UTC.

    Raises:
        ConfigError: the file is invalid.
        CorruptData: the record of a flow run cannot be read.
        StoreError: the store refused a request.
    """
    mark = f"{when:%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        made = load(mark=mark if number == 1 else f"{mark}-{number}")
        ensure_store(made.experiment.store)
        if write_first(LocalStorage(made.state), FlowClaim(flow)).id == flow:
            return made
        number += 1
