"""Pictures of one tensor or scalar of a run: its curve, its histogram or its images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor, did_you_mean
from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.histograms import (
    LEAST_SHARE,
    HistogramMap,
    bar_chart,
    histogram_chart,
    nearest_columns,
)
from vinedresser.explain.charts.images import colour_png, data_url, mosaic, tile_images
from vinedresser.explain.charts.line_chart import has_trend, line_chart
from vinedresser.explain.charts.palette import colour_bar
from vinedresser.explain.charts.plot import Plot, panel_of, save_bytes
from vinedresser.explain.charts.standalone import WIDTH, Panel, legend_line
from vinedresser.explain.charts.svg import Svg, element
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.step_record import Mode

__all__ = ["DRAWINGS", "LARGE", "SMALL", "Drawing", "curves_of", "draw", "drawing_of"]

Drawing = Literal["curve", "histogram", "images"]
# By the values of --as.
DRAWINGS: Mapping[str, Drawing] = MappingProxyType({one: one for one in get_args(Drawing)})
_FORMATS = (".svg", ".html", ".png")
LARGE, SMALL = Size(WIDTH - 40, 380), Size(WIDTH - 40, 180)
_BINS = 64
# Columns that can be told apart in a histogram over steps.
_MOST_COLUMNS = 400
_TALLEST_IMAGE = 640.0
# Pixels on the longer side of images, at least.
_LEAST_PIXELS = 512
_LABELS = {"train": "training", "eval": "evaluation", "predict": "prediction"}


def draw(
    run: Run,
    name: str,
    target: Path,
    *,
    step: int | None = None,
    mode: Mode = "train",
    rank: int = 0,
    kind: Drawing | None = None,
) -> Drawing:
    """Draw a tensor or scalar into an SVG, HTML or PNG file.

    A curve shows a scalar in all modes, or the statistics of a tensor, over the steps. A histogram
    shows the distribution of a tensor's elements, over the steps or at one step. Images show a
    tensor at one step: convolution filters, a batch of images, feature maps, a matrix.

    Args:
        target: the file: ``.svg``, ``.html``, or for images also ``.png``.
        step: only this step; None: all steps.
        mode: mode of the tensor's steps.
        rank: rank of a distributed run.
        kind: what to draw; None: images for one step of a tensor with two axes or more, a
            histogram for other tensors captured in full, else a curve.

    Returns:
        What was drawn.

    Raises:
        ConfigError: the file's suffix does not fit or it cannot be written, or the tensor cannot be
            drawn this way.
        UnknownTensor: no such tensor or scalar; the message names the nearest.
        UnknownStep: not captured at this step, or never in this mode.
        CorruptData: the bytes on disk do not match their checksum.
    """
    suffix = target.suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(f"{target}: unknown picture format; use .svg, .html or .png")
    subject = _subject(run, name, step, mode, rank)
    chosen = kind or subject.default_drawing()
    if suffix == ".png":
        if chosen != "images":
            raise ConfigError(f"{target}: only images can be drawn as PNG; use .svg for a {chosen}")
        save_bytes(target, colour_png(subject.mosaic()))
        return chosen
    subject.plot(chosen).save(target)
    return chosen


def drawing_of(run: Run, name: str) -> Plot:
    """Return the default drawing of a tensor or scalar over the training steps of rank 0.

    Raises:
        UnknownTensor: no such tensor or scalar; the message names the nearest.
        UnknownStep: never captured while training.
        CorruptData: the bytes on disk do not match their checksum.
    """
    subject = _subject(run, name, None, "train", 0)
    return subject.plot(subject.default_drawing())


def _subject(run: Run, name: str, step: int | None, mode: Mode, rank: int) -> _Subject:
    known = [*run.scalar_names(), *run.tensor_names()]
    if name not in known:
        raise UnknownTensor(f"{run.path}: no tensor or scalar {name}{did_you_mean(name, known)}")
    return _Subject(run, name, step, mode, rank)


@dataclass(frozen=True)
class _Subject:
    """A tensor or scalar, and the step, mode and rank to draw."""

    run: Run
    name: str
    step: int | None
    mode: Mode
    rank: int

    @property
    def is_scalar(self) -> bool:
        return self.name in self.run.scalar_names()

    def value(self) -> NDArray[Any]:
        """Return the tensor at the step, any shape and dtype."""
        if self.step is None:
            raise ConfigError(f"{self.name}: images need one step; choose it with --step")
        return self.run.tensor(self.name).value(self.step, self.mode, self.rank)

    def mosaic(self) -> NDArray[np.float64]:
        """Return the tensor at the step as a grid of pictures: float64 [H, W, 3], from 0 to 1."""
        value = self.value()
        filters = self.name.startswith(("weights/", "gradients/")) and value.ndim == 4
        last = self.run.info.framework == "keras"
        try:
            pixels = mosaic(tile_images(value, filters=filters, channels_last=last))
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}; try --as histogram") from error
        # Enlarged here, since many viewers blur a small picture.
        factor = max(1, -(-_LEAST_PIXELS // max(pixels.shape[:2])))
        return pixels.repeat(factor, axis=0).repeat(factor, axis=1)

    def default_drawing(self) -> Drawing:
        """Return the drawing that shows most of it."""
        if self.is_scalar:
            return "curve"
        if self.step is not None:
            return "images" if 2 <= self.value().ndim <= 4 else "histogram"
        full = self.run.tensor(self.name).steps(self.mode, self.rank)
        return "histogram" if len(full) else "curve"

    def plot(self, kind: Drawing) -> Plot:
        """Return a drawing of it."""
        where = f"{self.mode} step {self.step}" if self.step is not None else ""
        title = " · ".join(filter(None, [self.run.info.name, self.name, where]))
        return Plot(title, *_PANELS[kind](self))

    def missing(self, problem: str) -> UnknownStep:
        """Return the error for something that was never captured."""
        return UnknownStep(
            f"{self.run.path}: {self.name}: {problem} in mode {self.mode} of rank {self.rank}"
        )


_Drawn = tuple[list[Svg], list[Panel]]


def _curves(subject: _Subject) -> _Drawn:
    """Draw a scalar in all its modes, or each statistic of a tensor.

    Raises:
        UnknownStep: no statistics were captured.
    """
    run, name = subject.run, subject.name
    if subject.is_scalar:
        columns = {"": run.scalars(rank=subject.rank).get(name, Column.empty(name))}
    else:
        view = run.tensor(name)
        columns = {
            reduction: view.reduction(reduction, subject.mode, subject.rank)
            for reduction in view.reductions
        }
    columns = {word: column for word, column in columns.items() if len(column)}
    if not columns:
        raise subject.missing("no statistics were captured")
    return curves_of(columns, name)


def curves_of(columns: Mapping[str, Column], name: str) -> tuple[list[Svg], list[Panel]]:
    """Return the legend and the charts of columns over the same steps.

    Args:
        columns: columns with values, at least one, by caption.
        name: what all of them are, for the accessible names of the charts.
    """
    size = LARGE if len(columns) == 1 else SMALL
    steps = np.concatenate([column.steps for column in columns.values()])
    extent = int(steps.min()), int(steps.max())
    panels = [
        panel_of(word, line_chart(column, [], size, extent, f"{name} {word}".strip()))
        for word, column in columns.items()
    ]
    return legend_line(_curve_legend(list(columns.values()))), panels


def _curve_legend(columns: list[Column]) -> list[tuple[str, str]]:
    """Return the line styles that occur in curves, each with its label."""
    if any(has_trend(column) for column in columns):
        entries = [("raw", "training, every step"), ("trend", "trend")]
    else:
        entries = [("trend", _LABELS["train"])] if _occurs(columns, "train") else []
    entries += [(one, _LABELS[one]) for one in ("eval", "predict") if _occurs(columns, one)]
    if not all(np.isfinite(column.values).all() for column in columns):
        entries.append(("nonfinite", "not finite"))
    return entries


def _occurs(columns: list[Column], mode: Literal["train", "eval", "predict"]) -> bool:
    return any(len(column.of(mode)) for column in columns)


def _histogram(subject: _Subject) -> _Drawn:
    """Draw the distribution of a tensor's elements, over the steps or at one step."""
    if subject.step is None:
        return _histogram_over_steps(subject)
    flat, lost = _finite(subject.value())
    counts, edges = np.histogram(flat, _BINS)
    caption = f"elements by value{f' ({lost} not finite)' if lost else ''}"
    label = f"Distribution of {subject.name}"
    return [], [panel_of(caption, bar_chart(counts, edges, LARGE, label))]


def _histogram_over_steps(subject: _Subject) -> _Drawn:
    """Draw the distribution of a tensor's elements over the steps.

    Raises:
        UnknownStep: the tensor was never captured in full.
    """
    view = subject.run.tensor(subject.name)
    captured = view.steps(subject.mode, subject.rank)
    if not len(captured):
        raise subject.missing("never captured in full")
    even = len(np.unique(np.diff(captured))) <= 1
    count = min(len(captured), _MOST_COLUMNS) if even else _MOST_COLUMNS
    steps = captured[nearest_columns(captured, count)]
    read = {int(step): view.value(step, subject.mode, subject.rank) for step in np.unique(steps)}
    values = {step: _finite(value) for step, value in read.items()}
    edges = np.histogram_bin_edges(np.concatenate([flat for flat, _ in values.values()]), _BINS)
    shares = {
        step: np.histogram(flat, edges)[0] / flat.size if flat.size else np.full(_BINS, np.nan)
        for step, (flat, _) in values.items()
    }
    data = HistogramMap(
        name=subject.name,
        steps=np.linspace(captured[0], captured[-1], len(steps)),
        edges=edges,
        shares=np.stack([shares[int(step)] for step in steps], axis=1),
        captured=len(captured),
        damaged=0,
        not_finite=np.array([step for step, (_, lost) in values.items() if lost], np.int64),
    )
    bar = colour_bar(190.0, [(22.0, f"{LEAST_SHARE:.2%}"), (168.0, "100%")])
    legend = [
        element("g", bar, class_="scale"),
        element("text", "of the elements", x=184.0, y=12.0, class_="caption"),
    ]
    entries = [("median", "median")]
    if len(data.not_finite):
        entries.append(("nonfinite", "steps with elements that are not finite"))
    lines = element("g", *legend_line(entries), class_="histograms", transform="translate(300 0)")
    svg = histogram_chart(data, [], LARGE, f"Distribution of {subject.name} by step")
    return [*legend, lines], [panel_of("", svg)]


def _images(subject: _Subject) -> _Drawn:
    """Draw a tensor at one step as a grid of pictures."""
    pixels = subject.mosaic()
    height, width = pixels.shape[:2]
    scale = min((WIDTH - 40) / width, _TALLEST_IMAGE / height)
    size = {"width": width * scale, "height": height * scale}
    image = element("image", href=data_url(colour_png(pixels)), **size)
    return [], [Panel("", image, height * scale)]


_PANELS = {"curve": _curves, "histogram": _histogram, "images": _images}


def _finite(value: NDArray[Any]) -> tuple[NDArray[np.float64], int]:
    """Return the finite elements, and how many are not finite.

    Args:
        value: any shape, any dtype; complex elements count by their magnitude.

    Returns:
        float64 [N], and a number.
    """
    real = np.abs(value) if value.dtype.kind == "c" else value
    flat = real.reshape(-1).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    return finite, flat.size - finite.size
