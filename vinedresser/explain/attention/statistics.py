"""Statistics of attention heads.

Shape legend: N examples, H heads, L queries, S keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.attention.weights import LayerAttention

__all__ = ["HeadStatistics", "head_statistics"]

_Heads = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Means over the unmasked queries of all examples; float64 [H] each, NaN if undefined.

    Attributes:
        entropy: entropy of a query's weights, in nats.
        relative_entropy: entropy as a share of its maximum, the logarithm of the number of keys
            that any head gives a weight to for this query; queries with one such key do not count.
        distance: distance between query and key, in tokens, weighted; NaN unless L = S.
        confidence: largest weight of a query.
        self: weight of the query's own position; NaN unless L = S.
        first: weight of the first key.
        separator: weight of all separators together; NaN without separators.
        masked: share of masked queries.
    """

    entropy: _Heads
    relative_entropy: _Heads
    distance: _Heads
    confidence: _Heads
    self: _Heads
    first: _Heads
    separator: _Heads
    masked: _Heads


def head_statistics(
    layer: LayerAttention, separators: Collection[tuple[int, int]] = ()
) -> HeadStatistics:
    """Return the statistics of a layer's heads.

    Args:
        layer: the attention weights.
        separators: separator tokens as pairs of example and key; examples without separators do not
            count for `HeadStatistics.separator`.
    """
    weights = layer.weights
    examples, heads, queries, keys = weights.shape
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = np.abs((weights * logs).sum(-1))
    visible = (weights > 0).any(1, keepdims=True).sum(-1)
    most = np.log(visible, out=np.full(visible.shape, np.nan), where=visible > 1)
    distance = own = np.full((examples, heads, queries), np.nan)
    if queries == keys:
        places = np.arange(keys)
        distance = (weights * np.abs(places[:, None] - places)).sum(-1)
        own = np.diagonal(weights, axis1=2, axis2=3)
    parted = np.full((examples, heads, queries), np.nan)
    for example in {example for example, _ in separators}:
        columns = [key for other, key in separators if other == example]
        parted[example] = weights[example][..., columns].sum(-1)
    return HeadStatistics(
        entropy=_mean(entropy),
        relative_entropy=_mean(entropy / most),
        distance=_mean(distance),
        confidence=_mean(weights.max(-1)),
        self=_mean(own),
        first=_mean(weights[..., 0]),
        separator=_mean(parted),
        masked=layer.masked.mean((0, 2)),
    )


def _mean(values: NDArray[np.float64]) -> _Heads:
    """Return the means over examples and queries without NaN, float64 [H]; values: [N, H, L]."""
    defined = ~np.isnan(values)
    counts = defined.sum((0, 2))
    totals = np.where(defined, values, 0.0).sum((0, 2))
    return np.asarray(
        np.divide(totals, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    )
