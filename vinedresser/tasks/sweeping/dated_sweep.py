"""A separate sweep for each flow run of a deployment, named for its scheduled time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from vinedresser.store.records import Record, write_first
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.stores import ensure_store

__all__ = ["FlowClaim", "dated_sweep"]


@dataclass(frozen=True)
class FlowClaim(Record):
    """The flow run that makes a sweep, in the folder of the sweep's state.

    Attributes:
        id: Prefect's id of the flow run.
    """

    KEY: ClassVar[str] = "flow_run.json"

    id: str


def dated_sweep(load: Callable[..., Sweep], flow: str, when: datetime) -> Sweep:
    """Return the sweep of a flow run, NAME-TIME; the same one if the flow run is retried.

    Flow runs that are due in the same second have sweeps of their own: NAME-TIME, NAME-TIME-2 and
    so on.

    Args:
        load: reads the sweep file; takes the argument ``mark`` of `load_sweep`.
        flow: Prefect's id of the flow run.
        when: its scheduled time, in UTC.

    Raises:
        ConfigError: the file is invalid.
        CorruptData: the record of the flow run that makes a sweep cannot be read.
        StoreError: the store refused a request.
    """
    mark = f"{when:%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        sweep = load(mark=mark if number == 1 else f"{mark}-{number}")
        ensure_store(sweep.experiment.store)
        if write_first(LocalStorage(sweep.state), FlowClaim(flow)).id == flow:
            return sweep
        number += 1
