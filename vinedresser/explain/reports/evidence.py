"""Sections with evidence: update ratios, activations, confusion matrix, hard examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.explain.charts.figure import Figure, Section
from vinedresser.explain.charts.histograms import LEAST_SHARE, histogram_chart, histogram_map
from vinedresser.explain.charts.layers import (
    MOST_LINES,
    Band,
    LayerSeries,
    extremes,
    layer_lines,
    layer_statistic,
    update_ratios,
)
from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.formatting import count, number
from vinedresser.explain.reports.confusion import confusion, confusion_chart
from vinedresser.explain.reports.hard_examples import HardExamples, hard_examples
from vinedresser.explain.reports.last_batches import LastBatches
from vinedresser.explain.reports.scalar_sections import NARROW, WIDE
from vinedresser.rules.signals.parameters.update_ratios import USUAL_RATIOS
from vinedresser.store.reading.reader import Run

__all__ = [
    "ExampleSection",
    "activation_section",
    "confusion_section",
    "example_section",
    "update_section",
]

_USUAL = Band(*USUAL_RATIOS, f"usual: {number(USUAL_RATIOS[0])} to {number(USUAL_RATIOS[1])}")
_MOST_HISTOGRAMS = 4
_NO_BATCHES = (
    "Labels and predictions of a known loss were not captured. To capture some rows, set "
    "{} every = 5, rows = 64."
)


@dataclass(frozen=True)
class ExampleSection:
    """The examples with the highest loss.

    Attributes:
        note: origin of the examples.
        found: the examples; None if there are none.
        missing: what to capture for them; "" if there are examples.
    """

    note: str
    found: HardExamples | None
    missing: str = ""


def update_section(run: Run, markers: Sequence[Marker], extent: tuple[int, int]) -> Section:
    """Return the update-to-weight ratios."""
    title = "Updates by layer"
    data = update_ratios(run)
    if data is None:
        missing = (
            "Updates and weights were not both captured. To capture them, set "
            '[capture.updates] and [capture.weights] every = 20, reductions = ["l2"].'
        )
        return Section("updates", title, "", [], missing)
    label = f"Update-to-weight ratio of {count(len(data.names), 'weight')} by step"
    svg = layer_lines(data, markers, WIDE, extent, label, log=True, band=_USUAL)
    figure = Figure("|update| / |weight|", _series_note(data), svg)
    return Section("updates", title, "Euclidean norms, logarithmic", [figure])


def activation_section(run: Run, markers: Sequence[Marker], extent: tuple[int, int]) -> Section:
    """Return histograms of activations, or else their captured statistics."""
    title = "Activations"
    figures, note = _histograms(run, markers)
    for collection in ("activations", "outputs"):
        if figures:
            break
        figures = _statistics(run, collection, markers, extent)
    if figures:
        return Section("activations", title, note, figures)
    missing = (
        "Activations were not captured. To capture them, set "
        '[capture.activations] every = 20, reductions = ["histogram"].'
    )
    return Section("activations", title, "", [], missing)


def confusion_section(run: Run, seen: LastBatches | None) -> Section:
    """Return the confusion matrix; without charts if the task has no classes."""
    title = "Confusion matrix"
    if seen is None:
        return Section(
            "confusion",
            title,
            "",
            [],
            _NO_BATCHES.format("[capture.labels] and [capture.predictions]"),
        )
    data = confusion(seen, run.info.classes)
    if data is None:
        return Section("confusion", title, "", [])
    note = f"{data.right:.0%} correct among {seen.where}"
    if data.left_out:
        note += f" · {count(data.left_out, 'batch record')} left out: predictions not finite"
    if data.known > len(data.classes):
        note += f" · the {len(data.classes)} of {data.known:,} classes with the most errors"
    figure = Figure(seen.loss, note, confusion_chart(data))
    return Section("confusion", title, "shaded by the share of each row", [figure])


def example_section(run: Run, seen: LastBatches | None) -> ExampleSection:
    """Return the examples with the highest loss."""
    if seen is None:
        missing = _NO_BATCHES.format(
            "[capture.model_inputs], [capture.labels] and [capture.predictions]"
        )
        return ExampleSection("", None, missing)
    last = run.info.framework == "keras"
    found = hard_examples(seen, run.info.classes, run.info.features, channels_last=last)
    if found is None:
        return ExampleSection("", None, "This loss does not give the loss of a single row.")
    note = f"among {seen.where}"
    if found.features and found.of > len(found.features):
        note += f" · the {len(found.features)} of {found.of:,} most unusual features"
    return ExampleSection(note, found)


def _series_note(data: LayerSeries) -> str:
    notes = [count(len(data.names), "layer")]
    if len(data.names) > MOST_LINES:
        notes.append(f"lines of {MOST_LINES} and the extremes")
    notes.append(count(data.captured, "captured step"))
    if len(data.steps) < data.captured:
        notes.append(f"{len(data.steps)} drawn")
    if data.broken:
        notes.append(f"not finite {count(data.broken, 'time')}")
    ends = extremes(data)
    if ends is not None:
        lowest, highest = (data.names[end] for end in ends)
        notes.append(f"lowest {lowest}, highest {highest}")
    return " · ".join(notes)


def _histograms(run: Run, markers: Sequence[Marker]) -> tuple[list[Figure], str]:
    names = run.vector_names("histogram", "activations")
    names = names or run.vector_names("histogram", "outputs")
    chosen = np.linspace(0, len(names) - 1, min(len(names), _MOST_HISTOGRAMS)).round()
    figures = []
    for place in chosen.astype(int).tolist():
        data = histogram_map(run, names[place])
        if data is None:
            continue
        title = names[place].partition("/")[2]
        notes = [count(data.captured, "captured step")]
        if len(data.steps) + data.damaged < data.captured:
            notes.append(f"{len(data.steps)} drawn")
        if data.damaged:
            notes.append(f"{data.damaged} damaged")
        svg = histogram_chart(data, markers, NARROW, f"Distribution of {title} by step")
        figures.append(Figure(title, " · ".join(notes), svg))
    note = f"lighter: more elements, {LEAST_SHARE:.2%} to 100%, logarithmic; line: median"
    if len(names) > len(figures):
        note += f" · {len(figures)} of {len(names):,} layers"
    return figures, note if figures else ""


def _statistics(
    run: Run, collection: str, markers: Sequence[Marker], extent: tuple[int, int]
) -> list[Figure]:
    """Return the share of zeros and the standard deviation by layer."""
    words = {"zero_share": "Share of zeros", "std": "Standard deviation"}
    found = [
        (reduction, title, data)
        for reduction, title in words.items()
        if (data := layer_statistic(run, reduction, collection)) is not None
    ]
    size = WIDE if len(found) == 1 else NARROW
    figures = []
    for reduction, title, data in found:
        label = f"{title} of {count(len(data.names), 'layer')} by step"
        svg = layer_lines(data, markers, size, extent, label, log=reduction == "std")
        figures.append(Figure(title, _series_note(data), svg))
    return figures
