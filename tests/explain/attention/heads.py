"""Attention computed by hand, query by query."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_hand"]


def by_hand(
    queries: NDArray[Any], keys: NDArray[Any], *, scale: float | None = None, causal: bool = False
) -> NDArray[np.float64]:
    """Return softmax(q k / sqrt(D)), float64 [N, H, L, S].

    Args:
        queries: [N, H, L, D].
        keys: [N, H, S, D].
        scale: factor of the scores; None: 1 / sqrt(D).
        causal: query i sees keys 0 to i.
    """
    examples, heads, length, width = queries.shape
    found = np.zeros((examples, heads, length, keys.shape[2]))
    factor = width**-0.5 if scale is None else scale
    for place in np.ndindex(examples, heads, length):
        seen = place[2] + 1 if causal else keys.shape[2]
        vectors = keys[place[0], place[1], :seen].astype(np.float64)
        scores = vectors @ queries[place].astype(np.float64) * factor
        powers = np.exp(scores - scores.max())
        found[(*place, slice(None, seen))] = powers / powers.sum()
    return found
