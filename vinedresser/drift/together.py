"""Columns that are also monitored together: all numbers, and the dimensions of each embedding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Contents
from vinedresser.drift.evidence.directions import Directions, Moments
from vinedresser.drift.sizes.change import Change
from vinedresser.drift.sizes.jointly import change_together
from vinedresser.drift.windows import Window

__all__ = ["Found", "Group", "groups_of"]


class Found(NamedTuple):
    """What a group of columns shows.

    Attributes:
        evidence: of drift, in nats.
        handicap: part of the evidence that is needed because of the number of directions, in nats.
        since: index of the window at which the drift probably began.
        change: returns the clearest change along the direction with the most evidence, by all rows
            so far.
    """

    evidence: float
    handicap: float
    since: int
    change: Callable[[], Change]


class Group:
    """Columns that are monitored together.

    Args:
        columns: names of columns of numbers, or of one embedding.
    """

    def __init__(self, name: str, columns: list[str], baseline: Contents) -> None:
        self.name, self._columns = name, columns
        sample = self._rows(baseline.sample)
        half = len(sample) // 2
        cycle = baseline.cycle
        self.directions = Directions(
            sample[:half],
            sample[half:],
            baseline.seed,
            (baseline.phase[:half], baseline.phase[half:]),
            0.0 if cycle is None else cycle.whole,
        )

    def update(self, window: Window, random: np.random.Generator, distance: int) -> Found | None:
        """Add a window.

        Args:
            window: the window; one that lacks a column is skipped.
            random: orders equal values.
            distance: smallest distance of rows that are used.

        Returns:
            What was found; None while there is no direction to test.
        """
        ties = random.random((window.rows, 2))
        if not window.rows or any(name not in window.columns for name in self._columns):
            return None
        rows = self._rows(window.columns)
        tested = self.directions
        # Those that this window is tested along; it may be followed by others.
        share, since = tested.share, tested.since
        axes, inner, before, after = tested.axes, tested.inner_axes, tested.compared, tested.tested
        ratios = tested.update(rows, ties, distance, window.phase)
        if len(ratios) == 0:
            return None
        most = int(ratios.argmax())
        change = partial(
            self._change, axes[:, most], inner[:, most], (before, after), after.rows / distance
        )
        return Found(float(ratios[most]), -math.log(share), since, change)

    def _change(
        self,
        axis: NDArray[np.float64],
        inner: NDArray[np.float64],
        moments: tuple[Moments, Moments],
        rows: float,
    ) -> Change:
        """Return the clearest change along a direction; see `change_together`."""
        names = self._columns
        # Those of an embedding are its dimensions.
        if len(names) == 1:
            names = [f"{names[0]}[{at}]" for at in range(len(axis))]
        change = change_together(names, axis, inner, moments, rows)
        return replace(change, text=f"{self.name}: {change.text}")

    def _rows(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return np.column_stack([columns[name] for name in self._columns])


def groups_of(baseline: Contents) -> list[Group]:
    """Return the groups of columns of a baseline, those of a single column left out."""
    monitored = [column for column in baseline.columns if column.monitored]
    numbers = [one.name for one in monitored if one.kind == "number"]
    groups = [Group("columns together", numbers, baseline)] if len(numbers) > 1 else []
    return groups + [
        Group(f"{one.name}, dimensions together", [one.name], baseline)
        for one in monitored
        if one.kind == "embedding" and one.width > 1
    ]
