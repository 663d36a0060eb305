"""What a report shows, before it is laid out: texts, figures, and what is missing and why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.reader import Run
from vinedresser.capture.store.series import Column, Columns
from vinedresser.capture.store.status import Status
from vinedresser.errors import Damaged
from vinedresser.explain.gradient_map import GradientMap, gradient_map
from vinedresser.explain.heat_map import colour_scale, heat_map
from vinedresser.explain.line_chart import Size, has_trend, line_chart
from vinedresser.explain.markers import Marker
from vinedresser.explain.overview import Overview, overview
from vinedresser.explain.svg import Svg
from vinedresser.explain.wording import count, evidence_rows, number
from vinedresser.infra.run_directory import Heartbeat, heartbeat_key, read_record

__all__ = ["Card", "Figure", "HeatFigure", "Page", "build_page"]

_WIDE = Size(920, 220)
_NARROW = Size(450, 140)
_MOST_LOSSES, _MOST_METRICS, _MOST_CARDS, _MOST_MARKERS = 4, 12, 50, 12
_SCALE_WIDTH = 260.0


@dataclass(frozen=True)
class Figure:
    """A chart with its words.

    Attributes:
        title: what it shows.
        note: its last values, and what is not in the picture.
        svg: the chart.
    """

    title: str
    note: str
    svg: Svg


@dataclass(frozen=True)
class HeatFigure(Figure):
    """The heat map.

    Attributes:
        scale: its colour bar.
        data: what it was drawn from.
    """

    scale: Svg
    data: GradientMap


@dataclass(frozen=True)
class Card:
    """A finding, ready to be read.

    Attributes:
        number: as in the charts.
        title: the rule's name in words.
        finding: the finding.
        evidence: rows of name and text.
        stopped: whether it ended the run.
    """

    number: int
    title: str
    finding: Finding
    evidence: Sequence[tuple[str, str]]
    stopped: bool


@dataclass(frozen=True)
class Page:
    """All that a report shows.

    Attributes:
        head: name, status, figures that stand out, parameters.
        cards: the findings.
        findings_note: what to know when there are none, or not all can be shown.
        losses: charts of the losses.
        losses_note: what is missing, "" for nothing.
        metrics: charts of everything else that is a scalar.
        metrics_note: what is missing, "" for nothing.
        heat: the heat map, if there is something to draw.
        problems: what is wrong with the run's data.
        commands: how to look further: command and what it does.
        legend: which of "train", "trend", "eval", "nonfinite" and "rule" the charts have.
    """

    head: Overview
    cards: Sequence[Card]
    findings_note: str
    losses: Sequence[Figure]
    losses_note: str
    metrics: Sequence[Figure]
    metrics_note: str
    heat: HeatFigure | None
    problems: Sequence[str]
    commands: Sequence[tuple[str, str]]
    legend: frozenset[str]


def build_page(run: Run) -> Page:
    """Read a run and decide what its report shows.

    Raises:
        StoreError: the storage refused.
    """
    losses = run.scalars("losses")
    others = [column for name, column in run.scalars().items() if name not in losses]
    head = overview(run, losses)
    cards, findings_note = _cards(run, head.status)
    markers = _markers(cards)
    charted = [*losses.values()][:_MOST_LOSSES], others[:_MOST_METRICS]
    extent = _extent(head, [*charted[0], *charted[1]], markers)
    loss_size = _WIDE if len(charted[0]) == 1 else _NARROW
    return Page(
        head=head,
        cards=cards,
        findings_note=findings_note,
        losses=[_figure(column, markers, loss_size, extent) for column in charted[0]],
        losses_note=_losses_note(head, losses),
        metrics=[_figure(column, markers, _NARROW, extent) for column in charted[1]],
        metrics_note=_left_out(others, _MOST_METRICS),
        heat=_heat(run, markers),
        # Reading the columns, above, is what brings damage to light.
        problems=_problems(run),
        commands=_commands(run),
        legend=_legend([*charted[0], *charted[1]], markers),
    )


def _cards(run: Run, status: Status) -> tuple[list[Card], str]:
    try:
        findings = run.findings()
    except Damaged as error:
        return [], f"The findings cannot be read: {error}"
    ended = next((entry for entry in findings if entry.rule == status.rule), None)
    cards = [
        Card(
            number=place,
            title=finding.rule.replace("_", " ").capitalize(),
            finding=finding,
            evidence=evidence_rows(finding.evidence),
            stopped=finding is ended,
        )
        for place, finding in enumerate(findings[:_MOST_CARDS], start=1)
    ]
    if cards:
        more = len(findings) - len(cards)
        return cards, f"{count(more, 'further finding')} not shown" if more else ""
    if run.storage.list("findings/"):
        return [], "The rules watched this run and found nothing."
    return [], "No rule has watched this run; the last section says how to let one."


def _markers(cards: Sequence[Card]) -> list[Marker]:
    return [
        Marker(
            number=card.number,
            step=card.finding.step,
            severity=card.finding.severity,
            title=f"{card.title} at step {card.finding.step:,}: {card.finding.seen}",
        )
        for card in cards[:_MOST_MARKERS]
    ]


def _extent(
    head: Overview, columns: Sequence[Column], markers: Sequence[Marker]
) -> tuple[int, int]:
    """Return the first and last step of all axes."""
    ends = [int(column.steps[-1]) for column in columns if len(column)]
    return 0, max([head.steps_run - 1, *ends, *(marker.step for marker in markers)], default=0)


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


def _losses_note(head: Overview, losses: Columns) -> str:
    if losses:
        return _left_out(list(losses.values()), _MOST_LOSSES)
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


def _heat(run: Run, markers: Sequence[Marker]) -> HeatFigure | None:
    data = gradient_map(run)
    if data is None:
        return None
    what = {"l2": "Euclidean norm", "abs_mean": "mean absolute value"}[data.reduction]
    note = f"{what} · {count(len(data.names), 'parameter')} · {count(data.steps, 'captured step')}"
    if data.merged:
        note += ", neighbours merged by their geometric mean"
    return HeatFigure(
        title="Gradients by layer",
        note=note,
        svg=heat_map(data, markers, _WIDE.width),
        scale=colour_scale(data, _SCALE_WIDTH) if np.isfinite(data.log10).any() else Svg(),
        data=data,
    )


def _problems(run: Run) -> list[str]:
    problems = list(run.problems)
    for rank in run.ranks:
        beat = read_record(run.storage, Heartbeat, key=heartbeat_key(rank))
        if beat is not None and beat.dropped:
            dropped = count(beat.dropped, "step record")
            problems.append(f"rank {rank}: {dropped} not written (queue or disk full)")
    return problems


def _commands(run: Run) -> list[tuple[str, str]]:
    place = shlex.quote(run.path)
    return [
        (f"vinedresser show {place}", "status, names and values in the terminal"),
        (f"vinedresser judge {place}", "the rules once more, offline"),
        (
            f"vinedresser ui {shlex.quote(os.path.dirname(run.path) or '.')}",
            "all runs side by side, in MLflow",
        ),
    ]


def _legend(columns: Sequence[Column], markers: Sequence[Marker]) -> frozenset[str]:
    shown = set()
    for column in columns:
        if len(column.of("train")):
            shown.add("train")
        if has_trend(column):
            shown.add("trend")
        if len(column.of("eval")):
            shown.add("eval")
        if not np.isfinite(column.values).all():
            shown.add("nonfinite")
    if markers:
        shown.add("rule")
    return frozenset(shown)
