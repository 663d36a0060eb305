"""What a data set has fed to a training, by object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinedresser.data.records import Origins
from vinedresser.data.statistics import Statistics
from vinedresser.errors import DamagedData

__all__ = ["Fed", "FedObject"]


@dataclass(slots=True)
class FedObject:
    """What was fed of an object.

    Attributes:
        records: number of records, each as often as it came.
        iterations: number of iterations over the data set in which the object was fed.
        last: number of the last of these iterations, from 1.
    """

    records: int = 0
    iterations: int = 0
    last: int = 0


class Fed:
    """What a data set has delivered in this process.

    Args:
        statistics: those of the data set.
        damaged: errors of the records that it has left out.

    Attributes:
        iterations: number of iterations, which are epochs unless they were broken off.
        running: number of the iteration that moves the position; None if another position was
            loaded since.
        objects: what was fed of each object, by URI, in the order in which they came first.
    """

    def __init__(self, statistics: Statistics, damaged: list[DamagedData]) -> None:
        self.statistics = statistics
        self.damaged = damaged
        self.iterations = 0
        self.running: int | None = None
        self.objects: dict[str, FedObject] = {}

    def add(self, origins: Origins) -> None:
        """Add a batch of the current iteration."""
        counts = np.bincount(origins.objects, minlength=len(origins.uris)).tolist()
        for uri, count in zip(origins.uris, counts, strict=True):
            one = self.objects.get(uri)
            if one is None:
                one = self.objects[uri] = FedObject()
            one.records += count
            if one.last != self.iterations:
                one.iterations += 1
                one.last = self.iterations
