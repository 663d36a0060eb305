"""Norms of filters."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors

__all__ = ["L1Norm", "L2Norm", "over_mean", "squared_norms"]


class L1Norm(Criterion):
    """Sum of the absolute weights of a filter, divided by the group's mean.

    Li et al., Pruning Filters for Efficient ConvNets, ICLR 2017, section 3.1; they rank within a
    layer. Filters that are tied together (section 3.3) count with the sum of their norms.
    """

    name = "l1"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        sums = [np.abs(rows, out=rows).sum(axis=1) for rows in group.filters()]
        return over_mean(np.sum(sums, axis=0))


class L2Norm(Criterion):
    """Euclidean norm of a filter, with all filters tied to it, divided by the group's mean."""

    name = "l2"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        return over_mean(np.sqrt(squared_norms(group)))


def squared_norms(group: GroupTensors) -> Floats:
    """Return float64 [channels]: squared Euclidean norm of all filters of a channel.

    Raises:
        PruningError: no weight makes the channels.
    """
    squares = [np.square(rows, out=rows).sum(axis=1) for rows in group.filters()]
    total: Floats = np.sum(squares, axis=0)
    return total


def over_mean(scores: Floats) -> Floats:
    """Divide nonnegative scores by their mean, unless all are 0.

    Args:
        scores: float64 [channels].
    """
    mean = scores.mean()
    return scores / mean if mean > 0 else scores
