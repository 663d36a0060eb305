"""Distance from the geometric median."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors
from vinedresser.pruning.criteria.norms import over_mean


class GeometricMedian(Criterion):
    """Sum of the Euclidean distances of a filter from all others of its layer.

    He et al., Filter Pruning via Geometric Median for Deep Neural Networks Acceleration, CVPR 2019,
    equation 8: filters close to the others can be replaced by them. Divided by the group's mean.
    """

    name = "geometric_median"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        return over_mean(np.sum([_distances(rows) for rows in group.filters()], axis=0))


def _distances(rows: Floats) -> Floats:
    """Return float64 [channels]: sum of the distances of each row from all rows."""
    squares = np.square(rows).sum(axis=1)
    between = squares[:, None] + squares[None, :] - 2 * (rows @ rows.T)
    # Rounding can make the distance of equal rows slightly negative.
    total: Floats = np.sqrt(np.maximum(between, 0)).sum(axis=1)
    return total
