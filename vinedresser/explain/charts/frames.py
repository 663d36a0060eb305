"""Frames of a picture over the steps: the current one, and those before it, dimmed by age."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.axes import TICK_ROOM, Frame, Scale, Size, grid, nice_scale
from vinedresser.explain.charts.histograms import HistogramMap
from vinedresser.explain.charts.svg import Svg, chart, element, path_data

__all__ = ["layer_profile", "ridge_chart"]

_TOP = 8.0
_FAINTEST = 0.12
# Height of the highest peak of a ridge, in distances between two ridges.
_OVERLAP = 2.4


def layer_profile(
    frames: NDArray[np.float64], steps: Sequence[int], names: Sequence[str], size: Size, label: str
) -> Svg:
    """Return a size of each layer, in model order to the right, at some steps.

    Args:
        frames: sizes, float64 [F, L]: frames, the current one last; layers. NaN: unknown.
        steps: steps of the frames [F].
        names: names of the layers [L].
        label: accessible name of the chart.
    """
    bottom = _TOP + size.height
    x = Scale(0.5, len(names) + 0.5, size.left, size.width - size.right, whole=True)
    y = nice_scale(frames, bottom, _TOP)
    places = x(np.arange(1.0, len(names) + 1.0))
    drawn: list[Svg] = []
    for row, step, opacity in zip(frames, steps, _opacities(len(frames)), strict=True):
        usable = np.isfinite(row) & (row > 0) if y.log else np.isfinite(row)
        heights = np.where(usable, y(np.where(usable, row, 1.0)), np.nan)
        line = path_data(places, heights)
        drawn.append(element("path", d=line, stroke_opacity=opacity, data_step=step))
        if step == steps[-1]:
            drawn += _points(names, row, places, heights)
    known = bool(np.isfinite(frames).any())
    frame = Frame(x, y, _TOP, bottom)
    axes = grid(frame, size, values=known)
    return chart(label, size.width, bottom + TICK_ROOM, *axes, *drawn, kind="profile")


def _points(
    names: Sequence[str],
    row: NDArray[np.float64],
    places: NDArray[np.float64],
    heights: NDArray[np.float64],
) -> list[Svg]:
    """Return a point for each layer of the current frame; its tooltip has name and value."""
    return [
        element(
            "circle",
            element("title", f"{name}: {value:.6g}"),
            cx=float(right),
            cy=float(down),
            r=2.6,
            class_="point train",
            data_name=name,
            data_value=repr(float(value)),
        )
        for name, value, right, down in zip(names, row, places, heights, strict=True)
        if np.isfinite(down)
    ]


def ridge_chart(data: HistogramMap, until: int, most: int, size: Size, label: str) -> Svg:
    """Return the distributions at the last captured steps, the newest in front.

    Args:
        data: distributions over the steps.
        until: only columns up to this step; the first column if none is.
        most: number of columns drawn.
        label: accessible name of the chart.
    """
    chosen = np.flatnonzero(data.steps <= until)[-most:]
    chosen = chosen if chosen.size else np.zeros(1, np.intp)
    bottom = _TOP + size.height
    x = Scale(float(data.edges[0]), float(data.edges[-1]), size.left, size.width - size.right)
    shares = np.nan_to_num(data.shares[:, chosen])
    gap = size.height / (len(chosen) - 1 + _OVERLAP)
    scale = _OVERLAP * gap / max(float(shares.max(initial=0.0)), 1e-12)
    middles = x((data.edges[:-1] + data.edges[1:]) / 2)
    drawn = []
    for place, opacity in enumerate(_opacities(len(chosen))):
        base = bottom - gap * (len(chosen) - 1 - place)
        line = path_data(middles, base - scale * shares[:, place])
        step = int(data.steps[chosen[place]])
        title = element("title", f"step {step:,}")
        drawn.append(element("path", title, d=line, stroke_opacity=opacity, data_step=step))
    frame = Frame(x, Scale(0.0, 1.0, bottom, _TOP), _TOP, bottom)
    axes = grid(frame, size, values=False)
    return chart(label, size.width, bottom + TICK_ROOM, *axes, *drawn, kind="ridge")


def _opacities(frames: int) -> list[float]:
    """Return the opacity of each frame, the current one last and fully opaque."""
    return [float(one) for one in np.linspace(1.0, _FAINTEST, max(frames, 1))[::-1]]
