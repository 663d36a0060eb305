"""The report of a monitor: its windows, and each feature against its baseline."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift import Baseline
from vinedresser.drift.columns import read_column
from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Scale, Size, grid, step_axis
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.explain.formatting import shortened
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
        answer: "drift", "no drift seen" or "cannot tell".
        text: the answer in a sentence.
        tone: "bad", "doubtful" or "good"; how the answer is shown.
        requests: numbers of requests by what happened to them; None where unknown.
        reasons: why it cannot be told of some features or requests.
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
        return _evidence_chart(found, needed, first, _WIDE)

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
            draw = _values_chart if column.kind == "number" else _categories_chart
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
        return np.array(
            [np.nan if isinstance(value, str) else value for value in values], np.float64
        )


def write_monitor_report(page: MonitorPage, destination: str | os.PathLike[str]) -> Path:
    """Write the page and return its path; see `write_page`.

    Raises:
        StoreError: the file cannot be written.
    """
    return write_page(destination, "monitor.html.j2", page=page)


_TOP = 10.0
_BINS = 30
_MOST_CATEGORIES = 10
# Share of the values that may lie beyond either end of the axis.
_BEYOND = 0.005


def _evidence_chart(
    evidence: dict[str, NDArray[np.float64]], needed: float, first: int, size: Size
) -> Svg:
    """Return the evidence of features over the windows, and what raises an alarm.

    Args:
        evidence: log10 of it by name of the feature, float64 [windows].
        needed: log10 of the evidence that raises an alarm.
        first: number of the first window.
    """
    count = max(map(len, evidence.values()), default=1)
    bottom = _TOP + size.height
    highest = max([needed, *(float(np.nanmax(one, initial=0.0)) for one in evidence.values())])
    lowest = min([0.0, *(float(np.nanmin(one, initial=0.0)) for one in evidence.values())])
    x = step_axis((first, first + count - 1), size)
    frame = Frame(x, Scale(lowest, 1.06 * highest, bottom, _TOP), _TOP, bottom)
    windows = np.arange(first, first + count)
    alarm = float(frame.y(needed))
    place = {"x1": size.left, "x2": size.width - size.right, "y1": alarm, "y2": alarm}
    lines = [
        element(
            "path",
            element("title", name),
            d=path_data(frame.x(windows[-len(one) :]), frame.y(one)),
            class_="trend",
        )
        for name, one in evidence.items()
    ]
    return chart(
        "evidence of drift over the windows",
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        element("line", class_="limit", **place),
        *lines,
    )


def _values_chart(
    before: NDArray[np.float64], now: NDArray[np.float64], size: Size, label: str
) -> Svg:
    """Return the distribution of a number in a window, over that in the baseline.

    Args:
        before: values of the baseline [N]; NaN is left out.
        now: values of the window [M].
        label: accessible name of the chart.
    """
    before, now = before[np.isfinite(before)], now[np.isfinite(now)]
    both = np.concatenate([before, now])
    low, high = np.quantile(both, [_BEYOND, 1 - _BEYOND]) if both.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = [_shares(one, edges) for one in (before, now)]
    bottom = _TOP + size.height
    x = Scale(float(edges[0]), float(edges[-1]), size.left, size.width - size.right)
    top = 100 * max([float(share.max()) for share in shares] + [0.01])
    frame = Frame(x, Scale(0.0, 1.06 * top, bottom, _TOP), _TOP, bottom)
    filled = "".join(
        f"M{left:.2f} {bottom:g}V{height:.2f}H{right:.2f}V{bottom:g}Z"
        for left, right, height in zip(
            x(edges[:-1]), x(edges[1:]), frame.y(100 * shares[0]), strict=True
        )
    )
    steps = path_data(np.repeat(x(edges), 2)[1:-1], np.repeat(frame.y(100 * shares[1]), 2))
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(frame, size, values=True),
        element("path", d=filled, class_="bars"),
        element("path", d=steps, class_="now"),
    )


def _categories_chart(before: NDArray[Any], now: NDArray[Any], size: Size, label: str) -> Svg:
    """Return the shares of categories in a window beside those in the baseline.

    Args:
        before: categories of the baseline, None where missing [N].
        now: categories of the window [M].
        label: accessible name of the chart.
    """
    counts = [Counter(_category(one) for one in values.tolist()) for values in (before, now)]
    shares = [
        {name: 100 * count / max(len(values), 1) for name, count in found.items()}
        for found, values in zip(counts, (before, now), strict=True)
    ]
    largest = {name: max(one.get(name, 0.0) for one in shares) for one in shares for name in one}
    shown = sorted(largest, key=lambda name: -largest[name])[:_MOST_CATEGORIES]
    bottom = _TOP + size.height
    frame = Frame(
        Scale(0.0, float(max(len(shown), 1)), size.left, size.width - size.right),
        Scale(0.0, 1.06 * max([*largest.values(), 1.0]), bottom, _TOP),
        _TOP,
        bottom,
    )
    drawn = []
    for place, name in enumerate(shown):
        for part, (share, kind) in enumerate(zip(shares, ("bars", "now-bar"), strict=True)):
            left = float(frame.x(place + 0.15 + 0.35 * part))
            right = float(frame.x(place + 0.48 + 0.35 * part))
            height = float(frame.y(share.get(name, 0.0)))
            drawn.append(
                element(
                    "rect",
                    element("title", f"{name}: {share.get(name, 0.0):.1f} %"),
                    x=left,
                    y=height,
                    width=right - left,
                    height=bottom - height,
                    class_=kind,
                )
            )
        drawn.append(
            element(
                "text",
                shortened(name, 9),
                x=float(frame.x(place + 0.5)),
                y=bottom + 15,
                class_="tick x",
            )
        )
    # The categories are labelled one by one.
    unlabelled = frame._replace(x=Scale(0.1, 0.9, size.left, size.width - size.right, whole=True))
    lines = grid(unlabelled, size, values=True)
    return chart(label, size.width, bottom + TICK_ROOM, *lines, *drawn)


def _shares(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the values in each bin; those beyond count in the outermost ones."""
    inside = np.clip(values, edges[0], edges[-1])
    counts: NDArray[np.float64] = np.histogram(inside, edges)[0] / max(len(values), 1)
    return counts


def _category(value: object) -> str:
    return "missing" if value is None else str(value)
