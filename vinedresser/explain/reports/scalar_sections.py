"""The charts of scalars: losses, metrics, learning rate and times."""

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
from vinedresser.store.reading.series import Column, Columns

__all__ = ["Chosen", "MOST_LOSSES", "MOST_METRICS", "NARROW", "WIDE"]

WIDE = Size(920, 220)
NARROW = Size(450, 140)
MOST_LOSSES, MOST_METRICS = 4, 12
_MOST_COURSES = 8
# What says how a training is run rather than how it goes, what is looked at most first.
_COURSE = ("optimizer_state/", "timing/", "state/")


class Chosen:
    """The scalars of a run, by where they stand in the page.

    Args:
        losses: the losses.
        scalars: all of its scalars.

    Attributes:
        losses: the losses.
        metrics: what is neither a loss nor of the course of the training.
        course: learning rate, times and state, as far as they change.
        constants: those that do not.
    """

    def __init__(self, losses: Columns, scalars: Columns) -> None:
        self.losses = list(losses.values())
        others = [column for name, column in scalars.items() if name not in losses]
        course = [column for column in others if column.name.startswith(_COURSE)]
        self.metrics = [column for column in others if column not in course]
        self.constants = [column for column in course if _is_constant(column)]
        varying = [column for column in course if column not in self.constants]
        self.course = sorted(varying, key=_place)

    @property
    def drawn(self) -> list[Column]:
        """Those that are drawn."""
        return [
            *self.losses[:MOST_LOSSES],
            *self.metrics[:MOST_METRICS],
            *self.course[:_MOST_COURSES],
        ]

    @property
    def legend(self) -> frozenset[str]:
        """Which of "train", "trend", "eval" and "nonfinite" the charts have."""
        shown = set()
        for column in self.drawn:
            if len(column.of("train")):
                shown.add("train")
            if has_trend(column):
                shown.add("trend")
            if len(column.of("eval")):
                shown.add("eval")
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

    def course_section(self, markers: Sequence[Marker], extent: tuple[int, int]) -> Section:
        """Return the charts of learning rate, times and state."""
        drawn = self.course[:_MOST_COURSES]
        figures = _figures(drawn, markers, extent)
        notes = [
            "times in seconds" if any(one.name.startswith("timing/") for one in drawn) else "",
            _constant_note(self.constants),
            _left_out(self.course, _MOST_COURSES),
        ]
        missing = (
            ""
            if self.course or self.constants
            else "Neither the learning rate nor times were captured; ask for them: "
            "[capture.optimizer_state] and [capture.timing], every = 10."
        )
        note = " · ".join(filter(None, notes))
        return Section("course", "Learning rate and time", note, figures, missing)


def _is_constant(column: Column) -> bool:
    return len(column) > 1 and bool((column.values == column.values[0]).all())


def _place(column: Column) -> tuple[int, bool]:
    """Return where a scalar of the course stands: by its kind, the learning rate first."""
    kind = next(place for place, one in enumerate(_COURSE) if column.name.startswith(one))
    return kind, re.search(r"\b(lr|learning_rate)\b", column.name) is None


def _constant_note(columns: Sequence[Column]) -> str:
    listed = [f"{one.name} {number(float(one.values[0]))}" for one in columns[:_MOST_COURSES]]
    more = len(columns) - len(listed)
    if not listed:
        return ""
    return f"constant: {', '.join(listed)}{f' and {more} more' if more else ''}"


def _figures(
    drawn: Sequence[Column], markers: Sequence[Marker], extent: tuple[int, int]
) -> list[Figure]:
    """Return a chart of each; one that is alone has the place of two."""
    size = WIDE if len(drawn) == 1 else NARROW
    return [_figure(column, markers, size, extent) for column in drawn]


def _figure(
    column: Column, markers: Sequence[Marker], size: Size, extent: tuple[int, int]
) -> Figure:
    title = column.name.removeprefix("losses/").removeprefix("metrics/")
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
    if not head.steps_run:
        return "Nothing was captured: no optimizer step has ended" + (
            "." if head.status.over else " yet."
        )
    return (
        "No loss was captured. Show the hook the loss module, .watch(model, loss=loss_fn), or hand "
        'it the value, hook.save("losses/total", loss).'
    )


def _left_out(columns: Sequence[Column], most: int) -> str:
    if len(columns) <= most:
        return ""
    names = ", ".join(column.name for column in columns[most : most + 5])
    more = len(columns) - most
    return f"{count(more, 'further scalar')} not drawn: {names}{', …' if more > 5 else ''}"
