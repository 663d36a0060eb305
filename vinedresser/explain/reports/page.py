"""Contents of a report before layout: texts, charts, and notes on missing data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.explain.charts.figure import Figure, Section
from vinedresser.explain.charts.heat_map import colour_scale, heat_map, value_range
from vinedresser.explain.charts.layer_map import GRADIENT_SIZES, gradient_map
from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.formatting import count
from vinedresser.explain.reports.cards import Card, finding_cards, markers_of
from vinedresser.explain.reports.evidence import (
    ExampleSection,
    activation_section,
    confusion_section,
    example_section,
    update_section,
)
from vinedresser.explain.reports.last_batches import LastBatches, last_batches
from vinedresser.explain.reports.overview import Overview, overview
from vinedresser.explain.reports.scalar_sections import WIDE, ScalarSections, system_section
from vinedresser.explain.reports.timeline import timeline
from vinedresser.explain.verdicts import verdict
from vinedresser.masking import masked_text
from vinedresser.objects import Storage
from vinedresser.objects.base import get_or_none
from vinedresser.plain_text import visible
from vinedresser.preflight.record import PreflightRecord
from vinedresser.snapshots.reading import list_snapshots
from vinedresser.snapshots.record import REASONS, SnapshotRecord
from vinedresser.snapshots.replay_options import replay_options
from vinedresser.snapshots.replay_record import ReplayRecord, TriedChange, read_replay
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.records import ExitRecord, LaunchRecord, heartbeats, rank_log_key
from vinedresser.store.status import Status

__all__ = ["HeatFigure", "Page", "build_page"]

_MOST_LINES = 25
_MOST_BYTES = 16 * 1024
# Side by side they are compared, which nobody does with more.
_MOST_RANKS = 8
_FURTHER = ("--save",)


@dataclass(frozen=True)
class HeatFigure(Figure):
    """The heat map, with its colour bar."""

    scale: Svg


@dataclass(frozen=True)
class Page:
    """Contents of a report.

    Attributes:
        head: name, verdict, key numbers, parameters.
        cards: root causes, each with its symptoms.
        timeline: chart of the findings and changes by hand over the steps; "" if there are none.
        findings_note: note if there are no findings or some are left out.
        preflight: result of the checks that preceded the training; None if there were none.
        outputs: last output of the ranks if one of several failed.
        snapshots: the snapshots, and what replays of them found.
        losses: charts of the losses.
        metrics: charts of all other scalars.
        heat: heat map of the gradients, None if not captured.
        updates: update-to-weight ratios.
        activations: distributions of activations.
        confusion: confusion matrix.
        examples: examples with the highest loss.
        schedule: learning rate and timing.
        system: load of the machine.
        problems: damaged or missing data of the run.
        commands: further commands, each with its purpose.
        legend: those of "train", "trend", "eval", "predict", "nonfinite" and "rule" that occur.
    """

    head: Overview
    cards: Sequence[Card]
    timeline: Svg
    findings_note: str
    preflight: PreflightRecord | None
    outputs: Sequence[_RankOutput]
    snapshots: Sequence[_ShownSnapshot]
    losses: Section
    metrics: Section
    heat: HeatFigure | None
    updates: Section
    activations: Section
    confusion: Section
    examples: ExampleSection
    schedule: Section
    system: Section
    problems: Sequence[str]
    commands: Sequence[tuple[str, str]]
    legend: frozenset[str]


def build_page(run: Run) -> Page:
    """Read a run and return the contents of its report.

    Raises:
        StoreError: the storage cannot be read.
    """
    scalars = run.scalars()
    losses = run.scalars("losses")
    sections = ScalarSections(losses, scalars)
    faults: list[str] = []
    judged = verdict(run, faults)
    head = overview(run, judged, losses)
    cards, findings_note = finding_cards(run, judged)
    markers = markers_of(cards)
    controls = run.controls()
    extent = _extent(head, sections.drawn, cards)
    seen = last_batches(run)
    checked = read_record_or_none(run.storage, PreflightRecord, PreflightRecord.KEY, faults)
    return Page(
        head=head,
        cards=cards,
        timeline=timeline(cards, controls, extent, WIDE.width) if cards or controls else Svg(),
        findings_note=findings_note,
        preflight=checked,
        outputs=_rank_outputs(run.storage, faults),
        snapshots=_shown_snapshots(run, faults),
        losses=sections.loss_section(head, markers, extent),
        metrics=sections.metric_section(markers, extent),
        heat=_heat(run, markers),
        updates=update_section(run, markers, extent),
        activations=activation_section(run, markers, extent),
        confusion=confusion_section(run, seen),
        examples=example_section(run, seen),
        schedule=sections.schedule_section(markers, extent),
        system=system_section(run.system(), extent),
        # Reading the columns above reveals damage.
        problems=list(dict.fromkeys([*faults, *_problems(run, judged.status, seen)])),
        commands=_commands(run),
        legend=sections.legend | ({"rule"} if markers else set()),
    )


def _extent(head: Overview, columns: Sequence[Column], cards: Sequence[Card]) -> tuple[int, int]:
    """Return the first and last step of the axes."""
    ends = [int(column.steps[-1]) for column in columns if len(column)]
    fired = [each.finding.step for card in cards for each in card.all]
    return 0, max([head.verdict.steps - 1, *ends, *fired], default=0)


def _heat(run: Run, markers: Sequence[Marker]) -> HeatFigure | None:
    found = gradient_map(run)
    if found is None:
        return None
    reduction, data = found
    note = f"{GRADIENT_SIZES[reduction]} · {count(len(data.names), 'parameter')}"
    note += f" · {count(data.steps, 'captured step')}"
    if data.merged:
        note += ", neighbours merged by geometric mean"
    label = f"Size of the gradients of {len(data.names)} parameters by step"
    drawable = bool(np.isfinite(data.log10).any())
    return HeatFigure(
        title="Gradients by layer",
        note=note,
        svg=heat_map(data, markers, WIDE.width, label),
        scale=colour_scale(value_range(data.log10)) if drawable else Svg(),
    )


def _problems(run: Run, status: Status, seen: LastBatches | None) -> list[str]:
    problems = run.damage(status)
    if seen is not None and seen.damaged:
        problems.append(f"{count(seen.damaged, 'batch record')} with labels cannot be read")
    for beat in heartbeats(run.storage):
        if beat.dropped:
            lost = count(beat.dropped, "step record")
            problems.append(f"rank {beat.rank}: {lost} lost (queue or disk full)")
    return problems


def _commands(run: Run) -> list[tuple[str, str]]:
    place = shlex.quote(run.path)
    store = shlex.quote(os.path.dirname(run.path) or ".")
    return [
        (f"vinedresser show {place}", "show status, names and values in the terminal"),
        (f"vinedresser judge {place}", "judge the run again"),
        (f"vinedresser compare {store}", "compare all runs of the store on one page"),
        (f"vinedresser ui {store}", "compare them in MLflow"),
    ]


@dataclass(frozen=True)
class _RankOutput:
    """The last output of a rank.

    Attributes:
        first: whether it is the one that failed first.
        lines: its last lines, without what looks like a secret.
    """

    rank: int
    first: bool
    lines: Sequence[str]


def _rank_outputs(storage: Storage, faults: list[str]) -> list[_RankOutput]:
    """Return the last output of the ranks if one of them failed: that one, then the others.

    Args:
        faults: gets a sentence for each record that cannot be read.

    Raises:
        StoreError: the storage refused.
    """
    end = read_record_or_none(storage, ExitRecord, ExitRecord.KEY, faults)
    launch = read_record_or_none(storage, LaunchRecord, LaunchRecord.KEY, faults)
    if end is None or launch is None or end.rank is None:
        return []
    others = (rank for rank in range(launch.ranks) if rank != end.rank)
    shown = [end.rank, *others][:_MOST_RANKS]
    return [_RankOutput(rank, rank == end.rank, _last_lines(storage, rank)) for rank in shown]


def _last_lines(storage: Storage, rank: int) -> list[str]:
    content = get_or_none(storage, rank_log_key(rank)) or b""
    text = content[-_MOST_BYTES:].decode("utf-8", errors="replace")
    return [visible(masked_text(line)) for line in text.splitlines()[-_MOST_LINES:]]


@dataclass(frozen=True)
class _ShownSnapshot:
    """A snapshot in a report.

    Attributes:
        replay: what replays found; None if nothing was saved.
        command: the command that runs it again.
    """

    record: SnapshotRecord
    replay: ReplayRecord | None
    command: str

    @property
    def reason(self) -> str:
        """Why it was taken, in words."""
        return REASONS[self.record.reason]

    @property
    def size(self) -> str:
        """Size of its tensors in words."""
        return f"{self.record.bytes / 2**20:.1f} MiB"

    @property
    def trials(self) -> list[TriedChange]:
        return [TriedChange.from_json(trial) for trial in self.replay.trials] if self.replay else []


def _shown_snapshots(run: Run, faults: list[str]) -> list[_ShownSnapshot]:
    """Return the snapshots of a run, by step and rank.

    Args:
        faults: receives one sentence for each damaged record.

    Raises:
        StoreError: the storage refused.
    """
    return [
        _ShownSnapshot(
            snapshot,
            read_replay(run.storage, snapshot.name, faults),
            shlex.join(
                [
                    *("vinedresser", "replay", f"{run.path}/{SnapshotRecord.KEY}/{snapshot.name}"),
                    *replay_options(
                        snapshot.framework,
                        run.info.command,
                        _FURTHER,
                        world_size=snapshot.world_size,
                        own_loop=snapshot.of_own_loop,
                    ),
                ]
            ),
        )
        for snapshot in list_snapshots(run.storage, faults)
    ]
