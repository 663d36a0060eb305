"""Picture of how fast training data is read, by ways and settings."""

from __future__ import annotations

from collections.abc import Sequence

from vinedresser.data.benchmark import Benchmark
from vinedresser.explain.charts.label_bars import label_bars
from vinedresser.explain.charts.plot import Plot, panel_of
from vinedresser.explain.charts.standalone import WIDTH, Panel


def plot_reading(found: Benchmark) -> Plot:
    """Draw the measurements of a source: throughput, stages of a batch, and gaps between batches.

    A notebook shows the result; `Plot.save` writes it to a file.
    """
    proposed = next(one for one in found.measured if one.settings == found.proposed)
    batch = {name: share for name, share in proposed.stages.items() if share}
    batch["other work of Python"] = max(1 - sum(batch.values()), 0.0)
    named = [(one.way, one) for one in found.measured]
    panels = [
        _panel("MB/s", [(way, one.bytes_per_second / 1e6) for way, one in named]),
        _panel(
            f"share of the time, %: {proposed.way}",
            [(name, 100 * share) for name, share in batch.items()],
        ),
        _panel(
            "gap between two batches, 95th percentile, ms",
            [(way, 1e3 * one.gaps[1]) for way, one in named],
        ),
        _panel(
            "choppiness: 95th percentile of the gaps / median",
            [(way, one.choppiness) for way, one in named],
        ),
    ]
    size = f"{found.objects} objects, {found.records} records, {found.size / 1e6:.1f} MB"
    return Plot(f"Reading of {found.format}: {size}", [], panels)


def _panel(caption: str, bars: Sequence[tuple[str, float]]) -> Panel:
    return panel_of(caption, label_bars(bars, WIDTH - 40, caption))
