"""Labels of channels: one for each index of each axis of a tensor, and which belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from vinedresser.pruning.group import Indices

__all__ = ["Axis", "Labels"]


class Axis(NamedTuple):
    """An axis of a parameter or buffer whose indices have labels.

    Attributes:
        tensor: name of the parameter or buffer.
        first: label of its first index; the others follow.
        size: number of indices.
    """

    tensor: str
    axis: int
    first: int
    size: int


class Labels:
    """Labels from 1 on; 0 stands for none. Labels that are united are removed together.

    Axes of length 1 have no label: nothing can be removed from them, and they are broadcast.

    Args:
        axes: for each parameter and buffer, its shape; axes with length 0 have no label.

    Attributes:
        axes: the axes with labels, by first label.
        firsts: int64 [axes]: the first label of each.
        locks: labels that cannot be removed, with the reason, in the order in which it was found.
    """

    def __init__(self, axes: Mapping[str, tuple[int, ...]]) -> None:
        self.axes: list[Axis] = []
        self.locks: list[tuple[Indices, str]] = []
        following = 1
        for name, shape in axes.items():
            for axis, size in enumerate(shape):
                if size > 1:
                    self.axes.append(Axis(name, axis, following, size))
                    following += size
        self.firsts = np.array([axis.first for axis in self.axes], dtype=np.int64)
        self._parents = np.arange(following, dtype=np.int64)

    @property
    def count(self) -> int:
        """Number of labels, with 0."""
        return len(self._parents)

    def roots(self, labels: Indices) -> Indices:
        """Return the lowest label that each label is united with, in the same shape."""
        found: Indices = self._parents[labels]
        while True:
            further = self._parents[found]
            if (found == further).all():
                return found
            found = further

    def unite(self, one: Indices, other: Indices) -> None:
        """Unite labels pair by pair; none is 0."""
        while True:
            first, second = self.roots(one), self.roots(other)
            apart = first != second
            if not apart.any():
                return
            low = np.minimum(first, second)[apart]
            np.minimum.at(self._parents, np.maximum(first, second)[apart], low)

    def lock(self, labels: Indices, reason: str) -> None:
        """Forbid the removal of labels, and of those united with them; 0 is ignored."""
        self.locks.append((labels[labels > 0], reason))

    def owners(self, labels: Indices) -> list[int]:
        """Return the places in ``axes`` of the axes that labels belong to; 0 is ignored."""
        places = np.searchsorted(self.firsts, labels[labels > 0], side="right") - 1
        return sorted(set(places.tolist()))
