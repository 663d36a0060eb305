"""The system metrics of a run as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.store.reading.series import Column, Columns
from vinedresser.store.records import SystemRecord


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
