"""Norms of filters."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors

__all__ = ["L1Norm", "L2Norm", "over_mean"]


class L1Norm(Criterion):
    """Sum of the absolute weights of a filter, divided by the group's mean.

    Li et al., Pruning Filters for Efficient ConvNets, ICLR 2017, section 3.1; they rank within a
    layer. Filters that are tied together (section 3.3) count with the sum of their norms.
    """

    name = "l1"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        return over_mean(np.sum([np.abs(rows).sum(axis=1) for rows in group.filters()], axis=0))


class L2Norm(Criterion):
    """Euclidean norm of a filter, with all filters tied to it, divided by the group's mean."""

    name = "l2"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        squares = np.sum([np.square(rows).sum(axis=1) for rows in group.filters()], axis=0)
        return over_mean(np.sqrt(squares))


def over_mean(scores: Floats) -> Floats:
    """Divide nonnegative scores by their mean, unless all are 0.

    Args:
        scores: float64 [channels].
    """
    mean = scores.mean()
    return scores / mean if mean > 0 else scores
