"""Random scores, the control for all other criteria."""

from __future__ import annotations

import zlib

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors


class RandomOrder(Criterion):
    """Uniform random scores in [0, 1).

    Args:
        seed: seed of the order; a group's scores depend on it and the group's name only.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        words = (self._seed, zlib.crc32(group.group.name.encode()))
        return np.random.default_rng(words).random(group.group.size)
