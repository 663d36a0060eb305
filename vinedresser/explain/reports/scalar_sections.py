"""Sections of scalars: losses, metrics, learning rate and timing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.figure import Figure, Section
from vinedresser.explain.charts.line_chart import has_trend, line_chart
from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.formatting import count, number
from vinedresser.explain.reports.overview import Overview
from vinedresser.store.collections.collection import ACCURACY
from vinedresser.store.reading.series import Column, Columns

__all__ = ["MOST_LOSSES", "MOST_METRICS", "NARROW", "WIDE", "ScalarSections", "system_section"]

WIDE = Size(920, 220)
NARROW = Size(450, 140)
MOST_LOSSES, MOST_METRICS = 4, 12
_MOST_SCHEDULE, _MOST_SYSTEM = 8, 8
# Kinds of scalars that describe settings rather than results, the most important first.
_SCHEDULE = ("optimizer_state/", "timing/", "state/")


class ScalarSections:
    """The scalars of a run by section of the page.

    Attributes:
        metrics: all other scalars except those of the schedule.
        schedule: learning rate, timing and state, if they vary.
        constants: learning rate, timing and state, if they are constant.
    """

    def __init__(self, losses: Columns, scalars: Columns) -> None:
        self.losses = list(losses.values())
        others = [column for name, column in scalars.items() if name not in losses]
        schedule = [column for column in others if column.name.startswith(_SCHEDULE)]
        self.metrics = [column for column in others if column not in schedule]
        self.constants = [column for column in schedule if _is_constant(column)]
        varying = [column for column in schedule if column not in self.constants]
        self.schedule = sorted(varying, key=_place)

    @property
    def drawn(self) -> list[Column]:
        """The scalars that have a chart."""
        return [
            *self.losses[:MOST_LOSSES],
            *self.metrics[:MOST_METRICS],
            *self.schedule[:_MOST_SCHEDULE],
        ]

    @property
    def legend(self) -> frozenset[str]:
        """Those of "train", "trend", "eval", "predict" and "nonfinite" that occur in the charts."""
        shown = set()
        for column in self.drawn:
            if len(column.of("train")):
                shown.add("train")
            if has_trend(column):
                shown.add("trend")
            shown.update(mode for mode in ("eval", "predict") if len(column.of(mode)))
            if not np.isfinite(column.values).all():
                shown.add("nonfinite")
        return frozenset(shown)

    def loss_section(
        self, head: Overview, markers: Sequence[Marker], extent: tuple[int, int]
    ) -> Section:
        """Return the charts of the losses."""
        drawn = self.losses[:MOST_LOSSES]
        figures = _figures(drawn, markers, extent)
        missing = _left_out(self.losses, MOST_LOSSES) if drawn else _no_loss(head)
        return Section("losses", "Loss", "", figures, missing)

    def metric_section(self, markers: Sequence[Marker], extent: tuple[int, int]) -> Section:
        """Return the charts of the metrics."""
        drawn = self.metrics[:MOST_METRICS]
        figures = _figures(drawn, markers, extent)
        return Section("metrics", "Metrics", _left_out(self.metrics, MOST_METRICS), figures)

    def schedule_section(self, markers: Sequence[Marker], extent: tuple[int, int]) -> Section:
        """Return the charts of learning rate, timing and state."""
        drawn = self.schedule[:_MOST_SCHEDULE]
        figures = _figures(drawn, markers, extent)
        notes = [
            "times in seconds" if any(one.name.startswith("timing/") for one in drawn) else "",
            _constant_note(self.constants),
            _left_out(self.schedule, _MOST_SCHEDULE),
        ]
        missing = (
            ""
            if self.schedule or self.constants
            else "Learning rate and timing were not captured. To capture them, set "
            "[capture.optimizer_state] and [capture.timing] every = 10."
        )
        note = " · ".join(filter(None, notes))
        return Section("schedule", "Learning rate and timing", note, figures, missing)


def system_section(system: Columns, extent: tuple[int, int]) -> Section:
    """Return the charts of the load of the machine, as shares of what it has.

    Args:
        system: see `Run.system`.
        extent: first and last step of the axes.
    """
    shares = [one for name, one in system.items() if name.endswith("_percentage")]
    figures = []
    for column in shares[:_MOST_SYSTEM]:
        title = column.name.removeprefix("system/").removesuffix("_percentage").replace("_", " ")
        mean, most = (number(float(one)) for one in (column.values.mean(), column.values.max()))
        svg = line_chart(column, (), NARROW, extent, f"{title} in percent by step")
        figures.append(Figure(title, f"mean {mean} % · at most {most} %", svg))
    return Section("system", "Machine", _left_out(shares, _MOST_SYSTEM), figures)


def _is_constant(column: Column) -> bool:
    return len(column) > 1 and bool((column.values == column.values[0]).all())


def _place(column: Column) -> tuple[int, bool]:
    """Return the sort key of a scalar of the schedule: by kind, the learning rate first."""
    kind = next(place for place, one in enumerate(_SCHEDULE) if column.name.startswith(one))
    return kind, re.search(r"\b(lr|learning_rate)\b", column.name) is None


def _constant_note(columns: Sequence[Column]) -> str:
    listed = [
        f"{column.name} {number(float(column.values[0]))}" for column in columns[:_MOST_SCHEDULE]
    ]
    more = len(columns) - len(listed)
    if not listed:
        return ""
    return f"constant: {', '.join(listed)}{f' and {more} more' if more else ''}"


def _figures(
    drawn: Sequence[Column], markers: Sequence[Marker], extent: tuple[int, int]
) -> list[Figure]:
    """Return a chart per scalar; a single one is wide."""
    size = WIDE if len(drawn) == 1 else NARROW
    return [_figure(column, markers, size, extent) for column in drawn]


def _figure(
    column: Column, markers: Sequence[Marker], size: Size, extent: tuple[int, int]
) -> Figure:
    title = column.name.removeprefix("losses/").removeprefix("metrics/")
    if column.name.startswith(ACCURACY):
        title = "accuracy"
    notes = []
    for mode in ("train", "eval", "predict"):
        rows = column.of(mode)
        if len(rows):
            notes.append(f"{mode} {number(float(rows.values[-1]))}")
    bad = column.steps[~np.isfinite(column.values)]
    if len(bad):
        notes.append(f"not finite {count(len(bad), 'time')}, first at step {int(bad[0]):,}")
    svg = line_chart(column, markers, size, extent, f"{title} by step")
    return Figure(title, " · ".join(notes), svg)


def _no_loss(head: Overview) -> str:
    if not head.verdict.steps:
        return "Nothing was captured: no optimizer step has finished" + (
            "." if head.verdict.status.over else " yet."
        )
    return (
        "No loss was captured. Pass the loss module to the hook with .watch(model, loss=loss_fn), "
        'or the value with hook.save("losses/total", loss).'
    )


def _left_out(columns: Sequence[Column], most: int) -> str:
    if len(columns) <= most:
        return ""
    names = ", ".join(column.name for column in columns[most : most + 5])
    more = len(columns) - most
    return f"{count(more, 'more scalar')} not drawn: {names}{', …' if more > 5 else ''}"
