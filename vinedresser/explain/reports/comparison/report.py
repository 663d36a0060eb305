"""The report of a comparison of runs: one self-contained page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.charts.heat_map import colour_scale, heat_map, value_range
from vinedresser.explain.charts.layer_map import (
    GRADIENT_SIZES,
    common_maps,
    gradient_columns,
    ratio_columns,
)
from vinedresser.explain.charts.markers import Marker
from vinedresser.explain.charts.palette import NOT_FINITE, ZERO, colour
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.explain.reports.comparison.curves import curve_figures, system_figures
from vinedresser.explain.reports.comparison.tables import (
    environment_table,
    group_table,
    part_words,
    run_table,
    setting_table,
)
from vinedresser.explain.reports.templating import whole_page, write_page
from vinedresser.explain.reports.timeline import severity_sign
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.series import Column

__all__ = ["comparison_page", "write_comparison"]

_WIDTH = 450.0
_MOST_MAPS = 6
_MOST_MARKERS = 6


def write_comparison(comparison: Comparison, destination: str | os.PathLike[str]) -> Path:
    """Write the page of a comparison; see `comparison_page`.

    Args:
        comparison: as from `compare`.
        destination: file to write; replaced atomically, its directory is created.

    Raises:
        StoreError: a run cannot be read or the file cannot be written.
    """
    return write_page(destination, "comparison.html.j2", **_contents(comparison))


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison: one self-contained HTML file.

    It has no scripts and a light and a dark theme. The table lists all runs; curves and heat maps
    are drawn of those in `Comparison.drawn`.

    Args:
        comparison: as from `compare`.

    Raises:
        StoreError: a run cannot be read.
    """
    return whole_page("comparison.html.j2", **_contents(comparison))


def _contents(comparison: Comparison) -> dict[str, Any]:
    drawn = comparison.drawn
    partings = [part_words(drawn[0], *entry) for entry in comparison.partings]
    return {
        "comparison": comparison,
        "places": {run.name: place for place, run in enumerate(drawn)},
        "states": Counter(run.status.state for run in comparison.runs),
        "table": run_table(comparison),
        "groups": group_table(comparison),
        "partings": partings,
        "curves": curve_figures(comparison),
        "system": system_figures(comparison),
        "maps": [_gradient_section(drawn), _ratio_section(drawn)],
        "rules": _rule_rows(comparison),
        "settings": setting_table(comparison),
        "environment": environment_table(comparison),
        "uncommitted": sum(run.run.info.code.endswith("-dirty") for run in comparison.runs),
        "colours": {"zero": colour(ZERO), "not_finite": colour(NOT_FINITE)},
        "signs": {word: severity_sign(word, 7.0, 7.0) for word in ("stop", "warning", "info")},
    }


@dataclass(frozen=True)
class _MapSection:
    """Heat maps on one scale.

    Attributes:
        name: identifier in the page.
        title: heading.
        note: what is shown, and of which runs.
        scale: colour bar; "" if nothing is finite.
        figures: a map per run.
        missing: what to capture; "" if something is drawn.
    """

    name: str
    title: str
    note: str
    scale: Svg
    figures: Sequence[Figure]
    missing: str = ""


def _gradient_section(runs: Sequence[ComparedRun]) -> _MapSection:
    """Return the gradients by layer and step, of the statistic that most runs have."""
    title = "Gradients by layer"
    found = [(run, sizes) for run in runs if (sizes := gradient_columns(run.run)) is not None]
    kinds = Counter(kind for _, (kind, _) in found)
    if not kinds:
        missing = (
            "Gradient statistics were not captured. To capture them, set "
            '[capture.gradients] every = 20, reductions = ["l2"].'
        )
        return _MapSection("gradients", title, "", Svg(), [], missing)
    kind = kinds.most_common(1)[0][0]
    chosen = [(run, columns) for run, (own, columns) in found if own == kind and columns]
    return _section("gradients", title, GRADIENT_SIZES[kind], chosen, len(runs))


def _ratio_section(runs: Sequence[ComparedRun]) -> _MapSection:
    """Return the update-to-weight ratios by layer and step."""
    title = "Updates by layer"
    found = [(run, columns) for run in runs if (columns := ratio_columns(run.run))]
    if not found:
        missing = (
            "Updates and weights were not both captured. To capture them, set "
            '[capture.updates] and [capture.weights] every = 20, reductions = ["l2"].'
        )
        return _MapSection("updates", title, "", Svg(), [], missing)
    return _section("updates", title, "|update| / |weight|", found, len(runs))


def _section(
    name: str,
    title: str,
    what: str,
    found: Sequence[tuple[ComparedRun, Sequence[Column]]],
    runs: int,
) -> _MapSection:
    drawn = found[:_MOST_MAPS]
    maps = common_maps([columns for _, columns in drawn])
    values = np.concatenate([one.log10.ravel() for one in maps])
    ends = value_range(values)
    figures = [
        Figure(
            run.name, "", heat_map(one, _markers(run), _WIDTH, f"{title} of {run.name}", ends=ends)
        )
        for (run, _), one in zip(drawn, maps, strict=True)
    ]
    note = f"{what}, one scale; a cell has the last captured value"
    if len(drawn) < runs:
        note += f" · {len(drawn)} of {runs} runs"
    scale = colour_scale(ends) if np.isfinite(values).any() else Svg()
    return _MapSection(name, title, note, scale, figures)


def _markers(run: ComparedRun) -> list[Marker]:
    return [
        Marker(number, one.step, one.severity, f"{one.rule} at step {one.step:,}: {one.seen}")
        for number, one in _numbered(run)
    ]


@dataclass(frozen=True)
class _Cell:
    """What a rule found in a run.

    Attributes:
        severity: the highest severity.
        text: first step with the symptom, and the tensor.
        seen: the observation.
    """

    severity: Severity
    text: str
    seen: str


@dataclass(frozen=True)
class _RuleRow:
    """What a rule found in the runs.

    Attributes:
        rule: name of the rule.
        runs: number of all runs in which it fired.
        cells: what it found in each of the runs drawn; None for nothing.
    """

    rule: str
    runs: int
    cells: Sequence[_Cell | None]


def _rule_rows(comparison: Comparison) -> list[_RuleRow]:
    """Return a row for each rule that fired in any run, the most frequent first."""
    counts = Counter(
        rule
        for run in comparison.runs
        for rule in dict.fromkeys(finding.rule for finding in run.findings)
    )
    return [
        _RuleRow(rule, number, [_cell(run, rule) for run in comparison.drawn])
        for rule, number in counts.most_common()
    ]


def _numbered(run: ComparedRun) -> list[tuple[int, Finding]]:
    """Return the first root causes of a run with their numbers, from 1."""
    causes = [root.finding for root in run.judged.causes]
    return list(enumerate(causes[:_MOST_MARKERS], start=1))


def _cell(run: ComparedRun, rule: str) -> _Cell | None:
    found = [finding for finding in run.findings if finding.rule == rule]
    if not found:
        return None
    order = ("stop", "warning", "info")
    worst = min(found, key=lambda finding: (order.index(finding.severity), finding.step))
    layer = f" · {worst.tensor}" if worst.tensor else ""
    return _Cell(worst.severity, f"since step {worst.since:,}{layer}", worst.seen)
