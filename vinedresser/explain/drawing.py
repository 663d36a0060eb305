"""One tensor or scalar of a run as a picture: its curve, its histogram over steps, its images."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import (
    ConfigError,
    MissingDependency,
    UnknownStep,
    UnknownTensor,
    did_you_mean,
)
from vinedresser.explain.charts.tensor_images import mosaic, tile_images
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.step_record import MODES, Mode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DRAWINGS", "Drawing", "draw"]

Drawing = Literal["curve", "histogram", "images"]
# By the words of the command line.
DRAWINGS: Mapping[str, Drawing] = MappingProxyType({one: one for one in get_args(Drawing)})
_FORMATS = (".png", ".svg")
_BINS = 64
# Steps that can be told apart in a histogram over steps.
_MOST_STEPS = 400
_NOT_FINITE = "#e5383b"


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
    """Draw a tensor or scalar into a PNG or SVG file.

    A curve shows a scalar in all modes, or the statistics of a tensor, over the steps. A histogram
    shows the distribution of a tensor's elements, over the steps or at one; images show a tensor at
    one step: convolution filters, a batch of images, feature maps, a matrix.

    Args:
        run: the run.
        name: of a tensor or scalar of it.
        target: the file, ``.png`` or ``.svg``.
        step: only this step; None: all steps.
        mode: of the tensor's steps.
        rank: whose.
        kind: what to draw; None: images for a step of a tensor with two axes or more, a histogram
            for other tensors that were captured in full, else a curve.

    Returns:
        What was drawn.

    Raises:
        ConfigError: the file is of another kind or cannot be written, or this cannot be drawn of
            it.
        MissingDependency: matplotlib is not installed.
        UnknownTensor: no such tensor or scalar; the message has the nearest names.
        UnknownStep: it was not captured at this step, or never in this mode.
        CorruptData: the bytes on disk do not match their checksum.
    """
    if target.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{target}: pictures are {' or '.join(_FORMATS)} files")
    known = [*run.scalar_names(), *run.tensor_names()]
    if name not in known:
        raise UnknownTensor(f"{run.path}: no tensor or scalar {name}{did_you_mean(name, known)}")
    subject = _Subject(run, name, step, mode, rank)
    figure = _figure()
    chosen = kind or subject.fitting()
    if chosen == "curve":
        _draw_curves(figure, subject)
    elif chosen == "images":
        _draw_images(figure, subject)
    elif step is None:
        _draw_histograms(figure, subject)
    else:
        _draw_histogram(figure, subject)
    where = f"{mode} step {step}" if step is not None else ""
    figure.suptitle("   ".join(filter(None, [run.info.name, name, where])), fontsize=10)
    _save(figure, target)
    return chosen


@dataclass(frozen=True)
class _Subject:
    """What is drawn."""

    run: Run
    name: str
    step: int | None
    mode: Mode
    rank: int

    @property
    def is_scalar(self) -> bool:
        return self.name in self.run.scalar_names()

    def value(self) -> NDArray[Any]:
        """Return the tensor at the one step.

        Raises:
            ConfigError: it is not said which step that is.
        """
        if self.step is None:
            raise ConfigError(f"{self.name}: images are of one step; say which, with --step")
        return self.run.tensor(self.name).value(self.step, self.mode, self.rank)

    def fitting(self) -> Drawing:
        """Return what shows most of it."""
        if self.is_scalar:
            return "curve"
        if self.step is not None:
            return "images" if 2 <= self.value().ndim <= 4 else "histogram"
        full = self.run.tensor(self.name).steps(self.mode, self.rank)
        return "histogram" if len(full) else "curve"

    def missing(self, what: str) -> UnknownStep:
        """Return the error for something that was never captured of it."""
        return UnknownStep(
            f"{self.run.path}: {self.name}: {what} in mode {self.mode} of rank {self.rank}"
        )


def _figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            "drawing needs matplotlib, which is not installed: pip install 'vinedresser[plot]'"
        ) from error
    return Figure(figsize=(8, 5), dpi=120, layout="constrained")


def _save(figure: Figure, target: Path) -> None:
    """Save the picture; the same run gives the same bytes."""
    import matplotlib as mpl

    metadata = {"Date": None} if target.suffix.lower() == ".svg" else {"Software": None}
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    try:
        with mpl.rc_context({"svg.hashsalt": "vinedresser"}):
            figure.savefig(temporary, format=target.suffix[1:].lower(), metadata=metadata)
        os.replace(temporary, target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error


def _draw_curves(figure: Figure, subject: _Subject) -> None:
    """Draw a scalar in all its modes, or each statistic of a tensor."""
    run, name = subject.run, subject.name
    if subject.is_scalar:
        axes = figure.subplots()
        for one in MODES:
            found = run.scalars(mode=one, rank=subject.rank).get(name)
            if found is not None:
                axes.plot(found.steps, found.values, label=one, marker=_marker(found))
        axes.legend()
        axes.set_xlabel("step")
        return
    view = run.tensor(name)
    columns = {word: view.reduction(word, subject.mode, subject.rank) for word in view.reductions}
    columns = {word: column for word, column in columns.items() if len(column)}
    if not columns:
        raise subject.missing("no statistics were captured")
    grid: Any = figure.subplots(len(columns), 1, sharex=True, squeeze=False)
    for axes, (word, column) in zip(grid[:, 0], columns.items(), strict=True):
        axes.plot(column.steps, column.values, marker=_marker(column))
        axes.set_ylabel(word)
    grid[-1, 0].set_xlabel("step")


def _marker(column: Column) -> str:
    return "." if len(column) < 50 else ""


def _draw_histogram(figure: Figure, subject: _Subject) -> None:
    """Draw the distribution of the elements of one tensor at one step."""
    axes = figure.subplots()
    flat, lost = _finite(subject.value())
    axes.hist(flat, bins=_BINS)
    axes.set_xlabel(subject.name + (f"   ({lost} not finite)" if lost else ""))
    axes.set_ylabel("elements")


def _draw_histograms(figure: Figure, subject: _Subject) -> None:
    """Draw the distribution of a tensor's elements over the steps, one column a step."""
    view = subject.run.tensor(subject.name)
    steps = view.steps(subject.mode, subject.rank)
    if not len(steps):
        raise subject.missing("it was never captured in full")
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MOST_STEPS)).astype(int))
    steps = steps[chosen]
    values = [_finite(view.value(int(one), subject.mode, subject.rank)) for one in steps]
    edges = np.histogram_bin_edges(np.concatenate([flat for flat, _ in values]), _BINS)
    counts = np.stack([np.histogram(flat, edges)[0] for flat, _ in values], axis=1)
    shares = np.ma.masked_equal(counts / np.maximum(counts.sum(axis=0), 1), 0)
    axes = figure.subplots()
    mesh = axes.pcolormesh(_borders(steps), edges, shares, cmap="viridis")
    medians = [np.median(flat) if flat.size else np.nan for flat, _ in values]
    axes.plot(steps, medians, color="black", linewidth=1, label="median")
    lost = [one for one, (_, count) in zip(steps, values, strict=True) if count]
    for one in lost:
        axes.axvline(one, color=_NOT_FINITE, linewidth=1)
    axes.legend()
    axes.set_xlabel("step" + ("   (red: elements that are not finite)" if lost else ""))
    figure.colorbar(mesh, ax=axes, label="share of elements")


def _draw_images(figure: Figure, subject: _Subject) -> None:
    """Draw a tensor at one step as a grid of pictures."""
    value, name = subject.value(), subject.name
    filters = name.startswith(("weights/", "gradients/")) and value.ndim == 4
    last = subject.run.info.framework == "keras"
    try:
        rows = tile_images(value, filters=filters, channels_last=last)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}; draw a histogram, with --as histogram") from error
    axes = figure.subplots()
    axes.imshow(mosaic(rows), interpolation="nearest")
    axes.set_axis_off()


def _finite(value: NDArray[Any]) -> tuple[NDArray[np.float64], int]:
    """Return the finite elements, flat, magnitudes of complex ones; and how many are not finite."""
    real = np.abs(value) if value.dtype.kind == "c" else value
    flat = real.reshape(-1).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    return finite, flat.size - finite.size


def _borders(steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the borders between columns that lie at steps: float64, [N + 1]."""
    if len(steps) == 1:
        return np.array([steps[0] - 0.5, steps[0] + 0.5])
    middles = (steps[1:] + steps[:-1]) / 2
    first, last = steps[0] - (middles[0] - steps[0]), steps[-1] + (steps[-1] - middles[-1])
    return np.concatenate([[first], middles, [last]])
