"""Charts of a run for notebooks and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.heat_map import colour_scale, heat_map, value_range
from vinedresser.explain.charts.histograms import histogram_chart, histogram_map
from vinedresser.explain.charts.layer_map import GRADIENT_SIZES, gradient_map
from vinedresser.explain.charts.layers import (
    LayerSeries,
    layer_lines,
    layer_statistic,
    update_ratios,
)
from vinedresser.explain.charts.plot import Plot, panel_of
from vinedresser.explain.charts.standalone import Panel, legend_line
from vinedresser.explain.charts.svg import Svg, element
from vinedresser.explain.drawing import LARGE, SMALL, curves_of, drawing_of
from vinedresser.explain.reports.scalar_sections import MOST_LOSSES, MOST_METRICS, ScalarSections
from vinedresser.store.reading.reader import Run, open_run

_MOST_HISTOGRAMS = 4
_Charts = tuple[list[Svg], list[Panel]]


def plot(run: str | os.PathLike[str] | Run, what: str = "losses") -> Plot:
    """Draw a run over its steps; a notebook shows the result, `Plot.save` writes it to a file.

    Args:
        run: an opened run, its directory or its ``s3://`` URL.
        what: "losses"; "metrics"; "system", the load of the machine; "gradients", a heat map of
            their sizes by layer; "updates", relative to the weights; "activations"; or the name of
            a tensor or scalar.

    Raises:
        ConfigError: nothing of it was captured while training.
        UnknownTensor: no such tensor or scalar; the message names the nearest.
        UnknownStep: the tensor was never captured while training.
        NotARun: there is no run at this place.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the storage refused.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    if what not in _SUBJECTS:
        if "/" not in what and what not in opened.scalar_names():
            known = f"; use {', '.join(_SUBJECTS)}, or the name of a tensor or scalar"
            raise ConfigError(f"{what}: no such plot{did_you_mean(what, _SUBJECTS) or known}")
        return drawing_of(opened, what)
    legend, panels = _SUBJECTS[what](opened)
    if not panels:
        raise ConfigError(f"{opened.path}: no {what} were captured while training")
    return Plot(f"{opened.info.name} · {what}", legend, panels)


def _losses(run: Run) -> _Charts:
    columns = [*run.scalars("losses").values()][:MOST_LOSSES]
    return curves_of({column.name: column for column in columns}, "") if columns else ([], [])


def _metrics(run: Run) -> _Charts:
    columns = ScalarSections(run.scalars("losses"), run.scalars()).metrics[:MOST_METRICS]
    return curves_of({column.name: column for column in columns}, "") if columns else ([], [])


def _system(run: Run) -> _Charts:
    columns = {name: one for name, one in run.system().items() if name.endswith("_percentage")}
    return curves_of(columns, "") if columns else ([], [])


def _gradients(run: Run) -> _Charts:
    found = gradient_map(run)
    if found is None:
        return [], []
    reduction, data = found
    label = f"{GRADIENT_SIZES[reduction]} of the gradients by layer"
    ends = value_range(data.log10)
    scale = element("g", colour_scale(ends), class_="scale")
    return [scale], [panel_of(label, heat_map(data, [], SMALL.width, label))]


def _updates(run: Run) -> _Charts:
    return _layers({"|update| / |weight|": (update_ratios(run), True)})


def _activations(run: Run) -> _Charts:
    """Draw histograms, or else the captured statistics, as the report does."""
    for collection in ("activations", "outputs"):
        names = run.vector_names("histogram", collection)
        chosen = names[:: max(1, -(-len(names) // _MOST_HISTOGRAMS))]
        maps = [data for name in chosen if (data := histogram_map(run, name)) is not None]
        if maps:
            return [], [
                panel_of(one.name, histogram_chart(one, [], SMALL, one.name)) for one in maps
            ]
    for collection in ("activations", "outputs"):
        charts = _layers(
            {
                "share of zeros": (layer_statistic(run, "zero_share", collection), False),
                "standard deviation": (layer_statistic(run, "std", collection), True),
            }
        )
        if charts[1]:
            return charts
    return [], []


def _layers(series: Mapping[str, tuple[LayerSeries | None, bool]]) -> _Charts:
    """Draw a line per layer; the series by caption, each with whether its axis is logarithmic."""
    found = {caption: (data, log) for caption, (data, log) in series.items() if data is not None}
    size: Size = LARGE if len(found) == 1 else SMALL
    panels = []
    for caption, (data, log) in found.items():
        extent = int(data.steps[0]), int(data.steps[-1])
        panels.append(panel_of(caption, layer_lines(data, [], size, extent, caption, log=log)))
    entries = [("layer highest", "highest"), ("layer lowest", "lowest"), ("layer", "other layers")]
    return [element("g", *legend_line(entries), class_="layers")] if panels else [], panels


_SUBJECTS: Mapping[str, Callable[[Run], _Charts]] = MappingProxyType(
    {
        "losses": _losses,
        "metrics": _metrics,
        "system": _system,
        "gradients": _gradients,
        "updates": _updates,
        "activations": _activations,
    }
)
