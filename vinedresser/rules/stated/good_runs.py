"""Good runs of a training, and where another run leaves their spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.stated.course import Course
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import RunRecord
from vinedresser.store.run_settings import (
    differing,
    is_label,
    is_seed,
    observed_of,
    parameters_of,
    without_seeds,
)

__all__ = ["Distance", "GoodRuns", "lasting", "settings_of"]

# What runs may differ by whatever their spread, on a logarithmic scale or as a share of the range.
_FLOOR = 0.1
# Windows on either side whose spread counts, too.
_BESIDE = 1
# The logarithm of a value that is not positive where all those of the good runs are.
_NOTHING = -50.0


class Distance(NamedTuple):
    """How far a level is from those of the good runs.

    Attributes:
        usual: mean of theirs.
        low, high: the least and the greatest of theirs.
        off: distance from the mean on the scale of the quantity; see `GoodRuns.distance`.
        sigmas: the same in standard deviations of a further run.
    """

    value: float
    usual: float
    low: float
    high: float
    off: float
    sigmas: float


@dataclass(frozen=True)
class GoodRuns:
    """What is kept of good runs.

    Attributes:
        runs: their names, the oldest first.
        settings: settings of the last one; see `settings_of`.
        levels: by quantity and window (`Course`) a level of each run; only where all have one.
        rows: rows of a train step of one rank of the last one; 0 if unknown.
        named: ids of those that the user has named; () if they were chosen, or come from a table.
    """

    runs: Sequence[str]
    settings: Mapping[str, Any]
    levels: Mapping[str, Mapping[int, Sequence[float]]]
    rows: float = 0.0
    named: Sequence[str] = ()

    @classmethod
    def of(cls, runs: Mapping[str, Run]) -> Self:
        """Read good runs.

        Args:
            runs: the runs by name, the oldest first.

        Raises:
            CorruptData: stored values are damaged.
        """
        read = [_course(run) for run in runs.values()]
        courses = [one.levels for one in read]
        levels: dict[str, dict[int, list[float]]] = {}
        for name, windows in courses[0].items():
            for window in windows:
                found = [course.get(name, {}).get(window, math.nan) for course in courses]
                if all(map(math.isfinite, found)):
                    levels.setdefault(name, {})[window] = found
        *_, last = runs.values()
        ids = [run.info.id for run in runs.values()]
        return cls([*runs], settings_of(last.info), levels, read[-1].rows, ids)

    def to_json(self) -> dict[str, Any]:
        """Return the table of `from_json`."""
        levels = {
            name: {str(window): [*values] for window, values in windows.items()}
            for name, windows in self.levels.items()
        }
        settings = dict(self.settings)
        return {"runs": [*self.runs], "settings": settings, "levels": levels, "rows": self.rows}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Self:
        """Return good runs from a table.

        Raises:
            ValueError: the table has another form.
        """
        try:
            levels = {
                str(name): {
                    int(window): [float(value) for value in values]
                    for window, values in windows.items()
                }
                for name, windows in table["levels"].items()
            }
            names, rows = [str(name) for name in table["runs"]], float(table.get("rows", 0.0))
            found = cls(names, dict(table["settings"]), levels, rows)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError("good: must be a table with runs, settings and levels") from error
        count = len(found.runs)
        if not count or any(len(one) != count for each in levels.values() for one in each.values()):
            raise ValueError("good.levels: must have a level of each of the runs")
        return found

    def distance(self, name: str, window: int, value: float) -> Distance | None:
        """Return how far a level is from those of the good runs; None if they have none there.

        The scale is logarithmic where all levels of the quantity are positive; else its unit is the
        range of the mean level. The variance is that of the good runs in the window and the ones
        beside it, plus that of a floor, as for a prediction from a mean of few values.

        Args:
            name: the quantity.
        """
        scaled = self._scaled.get(name)
        if scaled is None or window not in scaled.places:
            return None
        place = scaled.places[window]
        near = scaled.spreads[max(place - _BESIDE, 0) : place + _BESIDE + 1]
        count = len(self.runs)
        sigma = math.sqrt((float(np.mean(near**2)) + _FLOOR**2) * (1 + 1 / count))
        levels = self.levels[name][window]
        off = math.inf
        if math.isfinite(value):
            off = scaled.scale(value) - float(scaled.means[place])
        usual = math.fsum(levels) / count
        return Distance(value, usual, min(levels), max(levels), off, off / sigma)

    @cached_property
    def _scaled(self) -> dict[str, _Scaled]:
        return {name: _Scaled.of(windows) for name, windows in self.levels.items()}

    def differing(self, info: RunRecord) -> dict[str, list[Any]]:
        """Return the settings of a run that are not those of the last good run, as both values.

        Arguments of the program count where no other setting shows a difference.
        """
        found = differing([self.settings, settings_of(info)])
        texts = found.pop("arguments", [])
        # A run with parameters has none.
        if texts and None not in texts:
            both = [text.split() for text in texts]
            left, right = (
                " ".join(word for word in one if word not in other)
                for one, other in (both, both[::-1])
            )
            found = found or {"arguments": [left, right]}
        return found


class _Scaled(NamedTuple):
    """Levels of a quantity on its scale.

    Attributes:
        places: position of each window.
        means: mean of the good runs, float64 [windows].
        spreads: standard deviation of the good runs, float64 [windows].
        unit: unit of the scale; 0: it is logarithmic.
    """

    places: Mapping[int, int]
    means: NDArray[np.float64]
    spreads: NDArray[np.float64]
    unit: float

    @classmethod
    def of(cls, windows: Mapping[int, Sequence[float]]) -> Self:
        """Return the levels, by window, of the good runs."""
        ordered = sorted(windows)
        levels = np.array([windows[one] for one in ordered], np.float64)
        unit = 0.0
        if not (levels > 0).all():
            means = levels.mean(axis=1)
            unit = max(float(np.ptp(means)), 0.1 * float(np.abs(means).max()), 1e-12)
        scaled = levels / unit if unit else np.log(levels)
        one = levels.shape[1] == 1
        spreads = np.zeros(len(ordered)) if one else scaled.std(axis=1, ddof=1)
        places = {window: place for place, window in enumerate(ordered)}
        return cls(places, scaled.mean(axis=1), spreads, unit)

    def scale(self, value: float) -> float:
        """Return a finite value on the scale."""
        if self.unit:
            return value / self.unit
        return math.log(value) if value > 0 else _NOTHING


def settings_of(info: RunRecord) -> dict[str, Any]:
    """Return what a run was made with, also ranks, but not seeds and labels: JSON types by name."""
    parameters = parameters_of(info).items()
    chosen = {name: value for name, value in parameters if not is_seed(name) and not is_label(name)}
    found = {**chosen, **observed_of(info), "ranks": info.world_size, "code": info.code}
    if not info.parameters:
        # The interpreter comes first.
        found["arguments"] = " ".join([*without_seeds(info.command)][1:])
    return found


def _course(run: Run) -> Course:
    course = Course()
    for step in run.follow():
        if step.rank == 0:
            course.take(step)
    course.finish()
    return course


def lasting(distances: Iterable[float], times: int) -> bool:
    """Return whether the last distances are beyond their limits on the same side.

    Args:
        distances: distances in units of their limits, in the order of the windows.
        times: number of windows.
    """
    last = [*distances][-times:]
    over = len(last) == times and all(abs(one) > 1 for one in last)
    return over and len({one > 0 for one in last}) == 1
