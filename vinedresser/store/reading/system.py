"""Reading the system metrics of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.json_values import parse_json
from vinedresser.store.reading.series import Column, Columns
from vinedresser.store.records import SystemRecord, read_json_lines

__all__ = ["read_system", "system_columns"]


def read_system(storage: Storage, faults: list[str]) -> list[SystemRecord]:
    """Return the load of the machine of a run over time.

    Args:
        faults: receives one sentence if lines are damaged.

    Raises:
        StoreError: the storage refused.
    """
    return read_json_lines(
        get_or_none(storage, SystemRecord.KEY) or b"",
        lambda line: SystemRecord.from_json(parse_json(line)),
        place=f"{storage.location}/{SystemRecord.KEY}",
        what="a record of system metrics",
        faults=faults,
    )


def system_columns(records: Sequence[SystemRecord]) -> Columns:
    """Return a column for each system metric, such as ``system/cpu_utilization_percentage``."""
    rows: dict[str, list[tuple[int, float, float]]] = {}
    for record in records:
        for name, value in record.values.items():
            rows.setdefault(name, []).append((record.step, value, record.time))
    found = []
    for name, points in rows.items():
        steps, values, times = zip(*points, strict=True)
        modes = np.zeros(len(points), np.uint8)
        column = (np.array(steps, np.int64), np.array(values, np.float64), np.array(times), modes)
        found.append(Column(f"system/{name}", *column))
    return Columns(found)
