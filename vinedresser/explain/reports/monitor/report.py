"""The report of a monitor: its windows, and each feature against its baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift import Baseline
from vinedresser.drift.columns import read_column
from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.reports.monitor.charts import (
    categories_chart,
    evidence_chart,
    values_chart,
)
from vinedresser.explain.reports.templating import write_page

__all__ = ["MOST_WINDOWS", "MonitorPage", "write_monitor_report"]

_WIDE, _SMALL = Size(960.0, 200.0), Size(460.0, 150.0)
# Windows and features that are drawn; of more, the last windows and the most drifted features.
MOST_WINDOWS = 1_000
_MOST_LINES, _MOST_FEATURES = 12, 40


@dataclass(frozen=True, eq=False)
class MonitorPage:
    """Contents of the page.

    Attributes:
        name: name of the monitor.
        answer: "drift", "no drift seen" or "cannot tell".
        text: the answer in a sentence.
        tone: "bad", "doubtful" or "good"; how the answer is shown.
        requests: numbers of requests by what happened to them; None where unknown.
        reasons: why it cannot be told of some features or requests.
        baseline: its baseline.
        windows: number of windows that were judged.
        verdicts: verdicts of the last windows, as JSON; see `vinedresser.drift.Verdict`.
        columns: columns of the last window.
        alerts: texts of the alerts.
    """

    name: str
    answer: str
    text: str
    tone: str
    requests: Mapping[str, int | None]
    reasons: Sequence[str]
    baseline: Baseline
    windows: int
    verdicts: Sequence[Mapping[str, Any]]
    columns: Mapping[str, NDArray[Any]]
    alerts: Sequence[str]

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The last verdict; None if no window was judged."""
        return self.verdicts[-1] if self.verdicts else None

    @property
    def evidence(self) -> Svg | None:
        """Evidence of the most drifted features over the windows."""
        if self.last is None:
            return None
        shown = [one["name"] for one in self.last["features"][:_MOST_LINES]]
        found = {name: self._evidence(name) for name in shown}
        if not found:
            return None
        needed = max(float(one["needed"]) for one in self.last["features"])
        first = self.windows - len(self.verdicts)
        return evidence_chart(found, needed, first, _WIDE)

    @property
    def charts(self) -> list[tuple[str, Svg]]:
        """Each feature against its baseline, the most drifted first: its text, and the chart."""
        if self.last is None:
            return []
        texts = {one["name"]: str(one["text"]) for one in self.last["features"]}
        columns = {one.name: one for one in self.baseline.columns}
        order = dict.fromkeys([*(name for name in texts if name in columns), *columns])
        drawn = []
        for name in [*order][:_MOST_FEATURES]:
            column = columns[name]
            now = read_column(self.columns.get(name, []), column.kind, column.width)
            if now is None or column.kind == "embedding":
                continue
            draw = values_chart if column.kind == "number" else categories_chart
            label = f"{name} in the last window and in the baseline"
            drawn.append(
                (texts.get(name, name), draw(self.baseline.sample[name], now, _SMALL, label))
            )
        return drawn

    def _evidence(self, name: str) -> NDArray[np.float64]:
        values = [
            next((one["evidence"] for one in verdict["features"] if one["name"] == name), np.nan)
            for verdict in self.verdicts
        ]
        return np.array([np.nan if isinstance(one, str) else one for one in values], np.float64)


def write_monitor_report(page: MonitorPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page: one self-contained HTML file with a light and a dark theme.

    Args:
        page: contents of the page.
        destination: file to write; replaced atomically.

    Returns:
        Path of the file.

    Raises:
        StoreError: the file cannot be written.
    """
    return write_page(destination, "monitor.html.j2", page=page)
