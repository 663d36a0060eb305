"""The course of a training: levels of its losses, metrics and gradients by window of steps.

A window is a range of steps: of five up to step 20, then each longer than the one before by
the square root of two. The level of a train quantity is the median of its values in a window, that
of an evaluation the last one.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from statistics import median

from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.stated.step_values import Evaluations, StepValues
from vinedresser.store.reading.step import Step

__all__ = ["DYNAMICS", "GRADIENT_NORM", "NEEDS", "STEP_SECONDS", "UPDATE_RATIO", "Course", "edge"]

GRADIENT_NORM = "gradient norm"
UPDATE_RATIO = "update ratio"
STEP_SECONDS = "step seconds"
DYNAMICS = (GRADIENT_NORM, UPDATE_RATIO, STEP_SECONDS)
"""Quantities that are no outcome of a training."""

NEEDS: tuple[Need, ...] = optional_statistics(
    20, gradients=("l2",), updates=("l2",), weights=("l2",)
)

_FIRST = [0, 5, 10, 15, 20]
_LAST = 1 << 40
_EDGES = [*_FIRST]
while _EDGES[-1] < _LAST:
    _EDGES.append(round(_FIRST[-1] * math.sqrt(2) ** (len(_EDGES) - len(_FIRST) + 1)))
# Steps that the first call of a compiler or a library makes longer.
_WARM = 5
_TIME = "timing/step"
_ROWS = "ranks/rows"


def edge(window: int) -> int:
    """Return the first step of a window."""
    return _EDGES[window]


class Course:
    """Collects the levels of a run; a pure fold over its steps.

    Attributes:
        levels: levels by quantity, such as ``train/loss``, and window.
    """

    def __init__(self) -> None:
        self.levels: dict[str, dict[int, float]] = {}
        self._evaluations = Evaluations()
        self._window = 0
        self._values: dict[str, list[float]] = {}
        # The first and the last known number of rows so far, by step.
        self._rows: list[tuple[int, float]] = []

    @property
    def rows(self) -> float:
        """Rows of a train step of rank 0 on average; 0 if they are unknown, as of one process."""
        if len(self._rows) < 2:
            return 0.0
        (first, fewer), (last, more) = self._rows
        return (more - fewer) / (last - first)

    def take(self, step: Step) -> int | None:
        """Take a step of rank 0; return the window that it completes, or None."""
        done = None
        for values in self._evaluations.take(step):
            if values.mode == "train":
                window = bisect.bisect_right(_EDGES, step.step) - 1
                if window > self._window:
                    done = self._close()
                    self._window = window
                self._note(values, step)
            else:
                self._evaluated(values)
        return done

    def finish(self) -> int:
        """Complete the last window, and return it."""
        for values in self._evaluations.flush():
            self._evaluated(values)
        return self._close()

    def _note(self, values: StepValues, step: Step) -> None:
        found = dict(_outcomes(values.scalars, "train"))
        norms = step.reduction_of("gradients", "l2")
        if norms:
            found[GRADIENT_NORM] = math.hypot(*norms.values())
        updates, weights = step.reduction_of("updates", "l2"), step.reduction_of("weights", "l2")
        sizes = {name.partition("/")[2]: norm for name, norm in weights.items() if norm > 0}
        paths = {name.partition("/")[2]: norm for name, norm in updates.items()}
        ratios = [norm / sizes[path] for path, norm in paths.items() if path in sizes]
        if ratios:
            found[UPDATE_RATIO] = median(ratios)
        if _TIME in values.scalars and step.step >= _WARM:
            found[STEP_SECONDS] = values.scalars[_TIME]
        if _ROWS in values.scalars:
            self._rows[1:] = [(step.step, values.scalars[_ROWS])]
        for name, value in found.items():
            self._values.setdefault(name, []).append(value)

    def _evaluated(self, values: StepValues) -> None:
        # The evaluation after the last step of a window belongs to it.
        window = bisect.bisect_right(_EDGES, max(values.step - 1, 0)) - 1
        for name, value in _outcomes(values.scalars, "eval"):
            self.levels.setdefault(name, {})[window] = value

    def _close(self) -> int:
        for name, values in self._values.items():
            self.levels.setdefault(name, {})[self._window] = median(values)
        self._values = {}
        return self._window


def _outcomes(scalars: Mapping[str, float], mode: str) -> Iterator[tuple[str, float]]:
    """Yield losses and metrics by mode and name."""
    named = f"{mode}/loss"
    first = next((name for name in scalars if name.startswith("losses/")), "")
    if first:
        yield named, scalars[first]
    for name, value in scalars.items():
        kind, _, short = name.partition("/")
        if kind in ("losses", "metrics") and name != first and short != "epoch":
            yield f"{mode}/{short}", value
