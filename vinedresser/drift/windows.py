"""A window of rows, read by the columns of a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vinedresser.drift.columns import read_column, read_times, row_count
from vinedresser.drift.contents import Contents
from vinedresser.errors import DriftError

__all__ = ["Window", "read_window"]


@dataclass(frozen=True)
class Window:
    """A window of rows.

    Args:
        rows: number of rows.
        columns: values of the columns that the baseline has, too; see `read_column`.
        violations: columns that do not have the form of the baseline's.
        outliers: numbers far outside the range of the baseline.
        phase: int64 [rows], phase of each row in the baseline's cycle.
    """

    rows: int
    columns: dict[str, NDArray[Any]]
    violations: tuple[str, ...]
    outliers: tuple[str, ...]
    phase: NDArray[np.int64]


def read_window(
    baseline: Contents, columns: Mapping[str, Any], times: ArrayLike | None = None
) -> Window:
    """Return a window of rows.

    Args:
        baseline: names and kinds of the columns.
        columns: arrays of one length by name; see `Baseline.of`.
        times: of the rows, in seconds, if the baseline's cycle goes by these.

    Raises:
        DriftError: lengths differ, or a column is not an array; times are missing, or no numbers.
    """
    rows = row_count(columns)
    phase = np.zeros(rows, np.int64)
    if baseline.cycle is not None and baseline.cycle.timed:
        if times is None:
            raise DriftError("times: the baseline's period is in seconds, so they are needed")
        phase = baseline.cycle.phase(read_times(times, rows))
    found: dict[str, NDArray[Any]] = {}
    outliers: list[str] = []
    violations = [
        f"{name}: not in the baseline"
        for name in columns
        if name not in {one.name for one in baseline.columns}
    ]
    for column in baseline.columns:
        if column.name not in columns:
            violations.append(f"{column.name}: missing")
            continue
        values = np.asarray(columns[column.name])
        read = read_column(values, column.kind, column.width) if rows else None
        if read is not None:
            found[column.name] = read
            if column.kind == "number":
                outliers += _out_of_range(column.name, baseline.sample[column.name], read)
        elif rows:
            expected = f"{column.kind}s" if column.kind == "number" else f"an {column.kind}"
            expected += f" of {column.width} dimensions" if column.kind == "embedding" else ""
            violations.append(
                f"{column.name}: values of type {values.dtype} and shape {list(values.shape)}; the "
                f"baseline has {expected}"
            )
    return Window(rows, found, tuple(violations), tuple(outliers), phase)


def _out_of_range(
    name: str, baseline: NDArray[np.float64], values: NDArray[np.float64]
) -> list[str]:
    """Return a message if values are further from the baseline's range than its width."""
    known = baseline[np.isfinite(baseline)]
    if known.size == 0:
        return []
    low, high = float(known.min()), float(known.max())
    width = high - low
    far = int(((values < low - width) | (values > high + width)).sum())
    if far == 0:
        return []
    return [f"{name}: {far} of {len(values)} values far outside {low:.4g} to {high:.4g}"]
