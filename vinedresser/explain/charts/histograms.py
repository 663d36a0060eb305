"""Distributions of a tensor's elements, at one step or over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.explain.charts.axes import (
    TICK_ROOM,
    Frame,
    Scale,
    Size,
    grid,
    nonfinite_strokes,
    step_axis,
)
from vinedresser.explain.charts.markers import Marker, draw_markers, marker_room
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE, indexed_png
from vinedresser.explain.charts.svg import Svg, chart, element, path_data
from vinedresser.store.reading.reader import Run
from vinedresser.store.reductions import Histogram

__all__ = [
    "LEAST_SHARE",
    "HistogramMap",
    "bar_chart",
    "histogram_chart",
    "histogram_map",
    "joined_histograms",
    "nearest_columns",
]

# Share of elements of the darkest colour; the lightest is 100 %.
LEAST_SHARE = 1e-4
_BINS = 48
_MOST_COLUMNS = 80
# Share of the elements of a step that may lie beyond either end of the axis.
_BEYOND = 0.005
_LARGEST = 1e300


def bar_chart(counts: NDArray[np.int64], edges: NDArray[np.float64], size: Size, label: str) -> Svg:
    """Return a histogram: values to the right, counts upwards.

    Args:
        counts: elements in each bin, int64 [B].
        edges: edges of the bins, float64 [B + 1], ascending.
        label: accessible name of the chart.
    """
    top = marker_room([])
    bottom = top + size.height
    x = Scale(float(edges[0]), float(edges[-1]), size.left, size.width - size.right)
    y = Scale(0.0, float(max(counts.max(), 1)) * 1.06, bottom, top, whole=True)
    bars = "".join(
        f"M{left:.2f} {bottom:g}V{height:.2f}H{right:.2f}V{bottom:g}Z"
        for left, right, height in zip(x(edges[:-1]), x(edges[1:]), y(counts), strict=True)
        if height < bottom
    )
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        *grid(Frame(x, y, top, bottom), size, values=True),
        element("path", d=bars, class_="bars"),
    )


@dataclass(frozen=True, eq=False)
class HistogramMap:
    """Shares of a tensor's elements by bin and step.

    Shape legend: C columns, each of one captured step; B bins.

    Attributes:
        steps: float64 [C], ascending: where the columns lie along the steps.
        edges: edges of the bins, float64 [B + 1].
        shares: float64 [B, C]; columns sum to 1, elements beyond the edges count in the outermost
            bins. NaN if no element was finite.
        captured: number of captured steps.
        damaged: number of steps that cannot be read.
        not_finite: int64 [K], steps with elements that are not finite, where known.
    """

    name: str
    steps: NDArray[np.float64]
    edges: NDArray[np.float64]
    shares: NDArray[np.float64]
    captured: int
    damaged: int
    not_finite: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


def histogram_map(run: Run, name: str) -> HistogramMap | None:
    """Return the histograms of a tensor over the training steps of rank 0.

    Args:
        name: name of a tensor whose "histogram" was captured.

    Returns:
        None if no histogram can be read or none has a finite element.
    """
    view = run.tensor(name)
    captured = view.steps(reduction="histogram")
    if not len(captured):
        return None
    count = min(len(captured), _MOST_COLUMNS)
    chosen = np.unique(captured[nearest_columns(captured, count)])
    found: list[tuple[int, Histogram]] = []
    for step in chosen.tolist():
        try:
            found.append((step, view.histogram(step)))
        except CorruptData:
            # Counted below and reported in the caption.
            continue
    damaged = len(chosen) - len(found)
    return joined_histograms(name, found, captured=len(captured), damaged=damaged)


def joined_histograms(
    name: str, found: Sequence[tuple[int, Histogram]], *, captured: int, damaged: int = 0
) -> HistogramMap | None:
    """Return histograms with common bins.

    Args:
        name: see `HistogramMap`.
        found: steps, ascending, and histograms.
        captured: see `HistogramMap`.
        damaged: see `HistogramMap`.

    Returns:
        None if none has a finite element.
    """
    edges = _common_edges([histogram for _, histogram in found])
    if edges is None:
        return None
    return HistogramMap(
        name=name,
        steps=np.array([step for step, _ in found], np.float64),
        edges=edges,
        shares=np.stack([_rebinned(histogram, edges) for _, histogram in found], axis=1),
        captured=captured,
        damaged=damaged,
    )


def nearest_columns(steps: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Return the nearest captured step of each column, at even distances.

    Args:
        steps: captured steps, int64 [N], ascending, at least one.
        count: number of columns.

    Returns:
        Indices of the steps, intp [count]; a single step has one column.
    """
    if len(steps) == 1:
        return np.zeros(1, np.intp)
    wanted = np.linspace(steps[0], steps[-1], count)
    after = np.clip(np.searchsorted(steps, wanted), 1, len(steps) - 1)
    return np.where(wanted - steps[after - 1] <= steps[after] - wanted, after - 1, after)


def histogram_chart(data: HistogramMap, markers: Sequence[Marker], size: Size, label: str) -> Svg:
    """Return the chart: steps to the right, values upwards, shares of elements as colours.

    Args:
        data: data to draw.
        markers: findings to mark; those beyond the captured steps are left out.
        label: accessible name of the chart.
    """
    first, last = int(data.steps[0]), int(data.steps[-1])
    half = (last - first) / max(len(data.steps) - 1, 1) / 2
    x = step_axis((first - half, last + half), size)
    markers = [marker for marker in markers if first - half <= marker.step <= last + half]
    places = [float(x(marker.step)) for marker in markers]
    top = marker_room(places)
    bottom = top + size.height
    y = Scale(float(data.edges[0]), float(data.edges[-1]), bottom, top)
    box = {
        "x": size.left,
        "y": top,
        "width": size.width - size.right - size.left,
        "height": size.height,
    }
    href = indexed_png(_indices(data.shares))
    return chart(
        label,
        size.width,
        bottom + TICK_ROOM,
        element("rect", class_="nothing", **box),
        element("image", href=href, preserveAspectRatio="none", class_="cells", **box),
        element("path", d=path_data(x(data.steps), y(_medians(data))), class_="median"),
        *nonfinite_strokes(x(data.not_finite), bottom),
        *grid(Frame(x, y, top, bottom), size, values=True),
        *draw_markers(markers, places, bottom),
        kind="histograms",
    )


def _medians(data: HistogramMap) -> NDArray[np.float64]:
    """Return the median of each column, linear within a bin; float64 [C], NaN if unknown."""
    medians = np.full(len(data.steps), np.nan)
    for column in np.flatnonzero(np.isfinite(data.shares).all(axis=0)):
        below = np.concatenate([[0.0], np.cumsum(data.shares[:, column])])
        medians[column] = np.interp(0.5 * below[-1], below, data.edges)
    return medians


def _indices(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return palette indices, highest bin first: uint8 [B, C]."""
    known = np.nan_to_num(shares)
    # Logarithmic, so that a peak, such as the zeros of relu, does not hide the rest.
    place = np.log10(np.maximum(known, LEAST_SHARE) / LEAST_SHARE) / -np.log10(LEAST_SHARE)
    level = np.round(np.clip(place, 0, 1) * (LEVELS - 1)).astype(np.uint8)
    return np.where(known > 0, FIRST_LEVEL + level, NONE).astype(np.uint8)[::-1]


def _common_edges(histograms: Sequence[Histogram]) -> NDArray[np.float64] | None:
    """Return edges that contain nearly all elements of each step, float64 [B + 1]."""
    ends = [_quantiles(histogram) for histogram in histograms if histogram.counts.sum()]
    if not ends:
        return None
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    # The span must be a finite float.
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    if not low < high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    share = np.arange(_BINS + 1) / _BINS
    return np.asarray(low * (1 - share) + high * share, np.float64)


def _quantiles(histogram: Histogram) -> tuple[float, float]:
    """Return the values that few elements are below or above."""
    total = np.concatenate([[0], np.cumsum(histogram.counts)]) / histogram.counts.sum()
    first = int(np.searchsorted(total, _BEYOND, side="right")) - 1
    last = int(np.searchsorted(total, 1 - _BEYOND, side="left"))
    return float(histogram.edges[first]), float(histogram.edges[last])


def _rebinned(histogram: Histogram, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares in common bins, float64 [B], assuming even spread within each own bin."""
    if not histogram.counts.sum():
        return np.full(len(edges) - 1, np.nan)
    total = np.concatenate([[0], np.cumsum(histogram.counts)]) / histogram.counts.sum()
    own = histogram.edges
    if own[0] == own[-1]:
        below = (own[0] <= edges).astype(np.float64)
        below[-1] = 1.0
    else:
        below = np.interp(edges, own, total)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)
