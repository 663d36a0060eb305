"""Scales of batch normalisation."""

from __future__ import annotations

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors


class BatchNormScale(Criterion):
    """Absolute scale (gamma) of the channel's normalisations; the mean if there are several.

    Liu et al., Learning Efficient Convolutional Networks through Network Slimming, ICCV 2017,
    section 3, with one threshold for all layers.
    """

    name = "batch_norm_scale"

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        scales = group.rows("scale")
        if not scales:
            raise PruningError(
                f"{group.group.name}: criterion batch_norm_scale needs a normalisation with a scale"
            )
        means: Floats = np.mean([np.abs(rows).mean(axis=1) for rows in scales], axis=0)
        return means
