"""Columns that are also monitored together: all numbers, and the dimensions of each embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Contents
from vinedresser.drift.evidence.directions import Directions
from vinedresser.drift.windows import Window
from vinedresser.drift.wording import Change, change_together

__all__ = ["Found", "Group", "groups_of"]


class Found(NamedTuple):
    """What a group of columns shows.

    Attributes:
        evidence: of drift, in nats.
        handicap: part of the evidence that is needed because of the number of directions, in nats.
        since: index of the window at which the drift probably began.
        axis: float64 [columns], the direction along which there is the most evidence.
    """

    evidence: float
    handicap: float
    since: int
    axis: NDArray[np.float64]


class Group:
    """Columns that are monitored together.

    Args:
        name: of the group.
        columns: names of columns of numbers, or of one embedding.
        baseline: their baseline.
    """

    def __init__(self, name: str, columns: list[str], baseline: Contents) -> None:
        self.name, self._columns = name, columns
        self._sample = self._rows(baseline.sample)
        half = len(self._sample) // 2
        self.directions = Directions(self._sample[:half], self._sample[half:], baseline.seed)

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
        # Those that this window is tested along; it may be followed by others.
        axes, share, since = self.directions.axes, self.directions.share, self.directions.since
        ratios = self.directions.update(rows, ties, distance)
        if len(ratios) == 0:
            return None
        most = int(ratios.argmax())
        return Found(float(ratios[most]), -math.log(share), since, axes[:, most])

    def change(self, found: Found, window: Window) -> Change:
        """Return the change that was found in a window."""
        rows = self._rows(window.columns)
        names = self._columns
        if len(names) == 1:
            names = [f"{names[0]}[{at}]" for at in range(rows.shape[1])]
        return change_together(names, found.axis, self._sample, rows)

    def _rows(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return np.column_stack([columns[name] for name in self._columns])


def groups_of(baseline: Contents) -> list[Group]:
    """Return the groups of columns of a baseline, those of a single column left out."""
    monitored = [one for one in baseline.columns if one.monitored]
    numbers = [one.name for one in monitored if one.kind == "number"]
    groups = [Group("columns together", numbers, baseline)] if len(numbers) > 1 else []
    return groups + [
        Group(f"{one.name}, dimensions together", [one.name], baseline)
        for one in monitored
        if one.kind == "embedding" and one.width > 1
    ]
