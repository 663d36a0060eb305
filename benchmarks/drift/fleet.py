"""Many monitors of the same world, updated in one go.

They are `DriftMonitor`s whose streams are computed as one array, and whose figures and words are
left out, which makes hundreds of lives of hundreds of windows affordable. The alarms are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.noise import independent
from benchmarks.drift.worlds import Values, World
from vinedresser.drift import Baseline, DriftError, DriftMonitor
from vinedresser.drift.budget import evidence_needed
from vinedresser.drift.encoders import CategoryEncoder
from vinedresser.drift.evidence.bins import Edges
from vinedresser.drift.evidence.streams import Streams
from vinedresser.drift.together import groups_of
from vinedresser.drift.windows import Window

__all__ = ["Fleet", "baseline_values", "columns_of"]

# Codes of categories are below.
_CODES = 10


def baseline_values(world: World, random: np.random.Generator, monitors: int) -> Values:
    """Return the rows of baselines, float64 [rows, monitors, columns]."""
    noise = world.noise() if world.ordered else independent()
    return world.shaped(random, noise(random, (world.baseline, monitors, world.columns)))


def columns_of(world: World, values: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the columns of one monitor.

    Args:
        world: the world.
        values: float64 [rows, columns].
    """
    if world.kind == "embedding":
        return {"embedding": values}
    if world.kind == "category":
        texts = values.astype(int).astype(str).astype(object)
        return {f"x{column}": texts[:, column] for column in range(values.shape[1])}
    return {f"x{column}": values[:, column] for column in range(values.shape[1])}


class Fleet:
    """Monitors of one world.

    Args:
        world: the world.
        baseline: rows of the baselines, float64 [rows, monitors, columns].
        budget: of each monitor.
    """

    def __init__(self, world: World, baseline: Values, budget: float) -> None:
        self._world, self._budget = world, budget
        baselines = []
        self.lives: list[int] = []
        """Numbers of the monitors whose baseline was not refused."""
        for one in range(baseline.shape[1]):
            try:
                baselines.append(Baseline.of(columns_of(world, baseline[:, one]), seed=one))
            except DriftError:
                continue
            self.lives.append(one)
        if not baselines:
            return
        self._each = max(len(one.streams) for one in baselines)
        # A column of a baseline may look dependent by chance; such monitors are updated singly.
        self._singly = {
            number: DriftMonitor(one, budget=budget)
            for number, one in enumerate(baselines)
            if len(one.streams) < self._each
        }
        self._together = [one for one in range(len(baselines)) if one not in self._singly]
        self._baselines = [baselines[one] for one in self._together]
        self._groups = [groups_of(one) for one in self._baselines]
        distances = [column.distance for one in self._baselines for column, _ in one.streams]
        edges = Edges.joined([one.edges for one in self._baselines])
        self._streams = Streams(edges, np.array(distances, np.int64), self._each)
        self._windows = 0
        self._codes = np.array([_places(one) for one in self._baselines])

    def update(self, values: Values) -> NDArray[np.bool_]:
        """Add a window, and return which monitors raise an alarm in it, bool [lives].

        Args:
            values: float64 [rows, monitors, columns].
        """
        if not self.lives:
            return np.zeros(0, bool)
        values = values[:, self.lives]
        found = np.zeros(values.shape[1], bool)
        for number, monitor in self._singly.items():
            columns = columns_of(self._world, values[:, number])
            found[number] = monitor.update(columns).alarm
        found[self._together] = self._alarms(values[:, self._together])
        self._windows += 1
        return found

    def _alarms(self, values: Values) -> NDArray[np.bool_]:
        """Return the alarms of the monitors that are updated together."""
        rows, monitors, _ = values.shape
        randoms = [np.random.default_rng([one.seed, self._windows]) for one in self._baselines]
        ties = np.concatenate([one.random((rows, self._each)) for one in randoms], axis=1)
        evidence = self._streams.update(self._encoded(values), ties).reshape(monitors, -1)
        alarms = evidence.max(1) >= evidence_needed(self._budget, "columns", self._each)
        shared = self._streams.spacing.shared
        for number, (groups, random) in enumerate(zip(self._groups, randoms, strict=True)):
            needed = evidence_needed(self._budget, "together", max(len(groups), 1))
            columns = columns_of(self._world, values[:, number]) if groups else {}
            for group in groups:
                found = group.update(Window(rows, columns, (), ()), random, int(shared[number]))
                if found is not None:
                    alarms[number] |= found.evidence >= needed + found.handicap
        return np.asarray(alarms)

    def _encoded(self, values: Values) -> Values:
        """Return the values of all streams, float64 [rows, streams]."""
        rows, monitors, columns = values.shape
        if self._world.kind == "number":
            return values.reshape(rows, -1)
        if self._world.kind == "category":
            places = np.arange(monitors)[:, None], np.arange(columns), values.astype(int)
            return np.asarray(self._codes[places].reshape(rows, -1))
        parts = [
            one.encoders["embedding"].encode(values[:, number])
            for number, one in enumerate(self._baselines)
        ]
        return np.concatenate(parts, axis=1)


def _places(baseline: Baseline) -> NDArray[np.float64]:
    """Return the values of the codes of categories, float64 [columns, _CODES]."""
    return np.array(
        [
            [encoder.codes.get(str(code), 0.0) for code in range(_CODES)]
            for encoder in baseline.encoders.values()
            if isinstance(encoder, CategoryEncoder)
        ]
    )
