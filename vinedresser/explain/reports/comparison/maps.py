"""Heat maps of several runs, side by side on one scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.reports.comparison.findings import numbered
from vinedresser.store.reading.series import Column

__all__ = ["MapSection", "gradient_section", "ratio_section"]

_WIDTH = 450.0
_MOST_MAPS = 6


@dataclass(frozen=True)
class MapSection:
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


def gradient_section(runs: Sequence[ComparedRun]) -> MapSection:
    """Return the gradients by layer and step, of the statistic that most runs have."""
    title = "Gradients by layer"
    found = [(run, sizes) for run in runs if (sizes := gradient_columns(run.run)) is not None]
    kinds = Counter(kind for _, (kind, _) in found)
    if not kinds:
        missing = (
            "Gradient statistics were not captured. To capture them, set "
            '[capture.gradients] every = 20, reductions = ["l2"].'
        )
        return MapSection("gradients", title, "", Svg(), [], missing)
    kind = kinds.most_common(1)[0][0]
    chosen = [(run, columns) for run, (own, columns) in found if own == kind and columns]
    return _section("gradients", title, GRADIENT_SIZES[kind], chosen, len(runs))


def ratio_section(runs: Sequence[ComparedRun]) -> MapSection:
    """Return the update-to-weight ratios by layer and step."""
    title = "Updates by layer"
    found = [(run, columns) for run in runs if (columns := ratio_columns(run.run))]
    if not found:
        missing = (
            "Updates and weights were not both captured. To capture them, set "
            '[capture.updates] and [capture.weights] every = 20, reductions = ["l2"].'
        )
        return MapSection("updates", title, "", Svg(), [], missing)
    return _section("updates", title, "|update| / |weight|", found, len(runs))


def _section(
    name: str,
    title: str,
    what: str,
    found: Sequence[tuple[ComparedRun, Sequence[Column]]],
    runs: int,
) -> MapSection:
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
    return MapSection(name, title, note, scale, figures)


def _markers(run: ComparedRun) -> list[Marker]:
    return [
        Marker(number, one.step, one.severity, f"{one.rule} at step {one.step:,}: {one.seen}")
        for number, one in numbered(run)
    ]
