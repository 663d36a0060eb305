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
from vinedresser.drift import Baseline, DriftError
from vinedresser.drift.encoders import CategoryEncoder
from vinedresser.drift.evidence.bins import Edges
from vinedresser.drift.evidence.streams import Streams
from vinedresser.drift.monitor import evidence_needed
from vinedresser.drift.together import groups_of
from vinedresser.drift.windows import Window

__all__ = ["Fleet", "baseline_values", "columns_of"]

# Codes of categories are below.
_CODES = 10
_DAY = 86_400.0


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
        self._world = world
        self.lives: list[int] = []
        """Numbers of the monitors whose baseline was not refused."""
        # A column of a baseline may look dependent by chance, and a cycle of rows has any length.
        alike: dict[tuple[object, ...], list[tuple[int, Baseline]]] = {}
        for one in range(baseline.shape[1]):
            columns = columns_of(world, baseline[:, one])
            try:
                made = Baseline.of(columns, seed=one, **_order(world))
            except DriftError:
                continue
            monitored = tuple(column.monitored for column in made.columns)
            alike.setdefault((monitored, made.cycle), []).append((len(self.lives), made))
            self.lives.append(one)
        self._parts = [
            ([number for number, _ in part], _Alike(world, [one for _, one in part], budget))
            for part in alike.values()
        ]

    def update(self, values: Values) -> NDArray[np.bool_]:
        """Add a window, and return which monitors raise an alarm in it, bool [lives].

        Args:
            values: float64 [rows, monitors, columns].
        """
        values = values[:, self.lives]
        found = np.zeros(values.shape[1], bool)
        for numbers, part in self._parts:
            found[numbers] = part.update(values[:, numbers])
        return found


class _Alike:
    """Monitors that are updated together.

    Args:
        world: the world.
        baselines: of the monitors, with the same monitored columns and cycle.
        budget: of each monitor.
    """

    def __init__(self, world: World, baselines: list[Baseline], budget: float) -> None:
        self._world, self._baselines = world, baselines
        first = baselines[0]
        self._cycle, self._each = first.cycle, len(first.streams)
        self._columns = [at for at, column in enumerate(first.columns) if column.monitored]
        distances = [column.distance for baseline in baselines for column, _ in baseline.streams]
        self._streams = Streams(
            Edges.joined([baseline.edges for baseline in baselines]),
            np.array(distances, np.int64),
            self._each,
            known=np.concatenate([baseline.usual for baseline in baselines], axis=1),
            whole=0.0 if first.cycle is None else first.cycle.whole,
            confirms=True,
            told=None
            if first.told is None
            else np.concatenate([baseline.told for baseline in baselines]),
        )
        self._groups = [groups_of(baseline) for baseline in baselines]
        self._codes = np.array([_places(baseline) for baseline in baselines])
        self._needed = evidence_needed(budget, "columns", self._each)
        groups = max(len(self._groups[0]), 1)
        self._needed_together = evidence_needed(budget, "together", groups)
        self._windows = 0

    def update(self, values: Values) -> NDArray[np.bool_]:
        """Add a window; see `Fleet.update`."""
        rows, monitors, _ = values.shape
        phase = np.zeros(rows, np.int64)
        if self._world.timed and self._cycle is not None:
            phase = self._cycle.phase(_times(self._windows, rows))
        randoms = [
            np.random.default_rng([baseline.seed, self._windows]) for baseline in self._baselines
        ]
        ties = np.concatenate([one.random((rows, self._each)) for one in randoms], axis=1)
        evidence = self._streams.update(self._encoded(values), ties, phase=phase)
        alarms = evidence.reshape(monitors, -1).max(1) >= self._needed
        shared = self._streams.spacing.shared
        for number, (groups, random) in enumerate(zip(self._groups, randoms, strict=True)):
            columns = columns_of(self._world, values[:, number]) if groups else {}
            for group in groups:
                window = Window(rows, columns, (), (), phase)
                found = group.update(window, random, int(shared[number]))
                if found is not None:
                    alarms[number] |= found.evidence >= self._needed_together + found.handicap
        self._windows += 1
        return np.asarray(alarms)

    def _encoded(self, values: Values) -> Values:
        """Return the values of all streams, float64 [rows, streams]."""
        rows, monitors, _ = values.shape
        if self._world.kind == "embedding":
            parts = [
                one.encoders["embedding"].encode(values[:, number])
                for number, one in enumerate(self._baselines)
            ]
            return np.concatenate(parts, axis=1)
        values = values[..., self._columns]
        if self._world.kind == "category":
            places = np.arange(monitors)[:, None], self._columns, values.astype(int)
            values = self._codes[places]
        return np.asarray(values.reshape(rows, -1))


def _times(day: int, rows: int) -> NDArray[np.float64]:
    """Return the times of the requests of a day in seconds."""
    return (day + (np.arange(rows) + 0.5) / rows) * _DAY


def _order(world: World) -> dict[str, Any]:
    """Return what is known of the order of the rows of baselines, which end before day 0."""
    if not world.timed:
        return {"in_time_order": world.ordered}
    day, parts = 0, list[NDArray[np.float64]]()
    while sum(map(len, parts)) < world.baseline:
        day -= 1
        parts.insert(0, _times(day, world.rows(day)))
    return {"period": 7 * _DAY, "times": np.concatenate(parts)}


def _places(baseline: Baseline) -> NDArray[np.float64]:
    """Return the values of the codes of categories, float64 [columns, _CODES]."""
    return np.array(
        [
            [encoder.codes.get(str(code), 0.0) for code in range(_CODES)]
            for encoder in baseline.encoders.values()
            if isinstance(encoder, CategoryEncoder)
        ]
    )
