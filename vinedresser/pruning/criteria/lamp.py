"""Layer-adaptive magnitudes."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors
from vinedresser.pruning.criteria.norms import squared_norms


class Lamp(Criterion):
    """Squared norm of a filter, divided by those of all filters of the group that are not smaller.

    Lee et al., Layer-Adaptive Sparsity for the Magnitude-Based Pruning, ICLR 2021, equation 4, with
    filters instead of weights. The largest filter scores 1.
    """

    name = "lamp"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        squares = squared_norms(group)
        order = np.argsort(squares, kind="stable")
        ascending = squares[order]
        remaining = np.cumsum(ascending[::-1])[::-1]
        scores: Floats = np.empty_like(squares)
        # A group of zeros only: nothing tells its filters apart.
        scores[order] = np.divide(
            ascending, remaining, out=np.ones_like(ascending), where=remaining > 0
        )
        return scores
