"""Likelihood ratio of a change of the shares of bins, against the Pólya urn of no change.

The urn is a product of independent beta-binomial laws, one for each node of a tree over the bins.
In the alternative, each node's share has either stayed or changed, independently of the other nodes
(compare Holmes et al., *Two-sample Bayesian nonparametric hypothesis testing*, Bayesian Analysis
2015). Without drift, the ratio is a martingale, since both are laws of the same sequence of values,
and the first one holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from vinedresser.drift.evidence.nodes import LEFT, NODES_PER_TREE, PRIOR, RIGHT

__all__ = ["Before", "log_ratio", "urn_before"]

# A changed share is near the one before (a beta law with parameters of this sum), or anything.
_TWICE_STRENGTH = 64
# Evidence of a node that is counted at most, in nats: what float32 can hold. Less is always valid.
_MOST = np.float32(80.0)
# log Γ(k / 2). Counts are integers, and parameters multiples of 1/2.
_TABLE = gammaln(np.maximum(np.arange(1 << 17), 1) / 2)


@dataclass(frozen=True)
class Before:
    """What a likelihood ratio needs to know of the time before the change.

    Args:
        counts: float64 [..., BINS], gaps and values in the bins.
        left: int32 [..., nodes], their sums on the left of each node.
        right: int32 [..., nodes], their sums on the right of each node.
        near: int32 [..., nodes], twice the first parameter of the law near the share before.
        near_offset: float64 [..., nodes], constant term of that law, in nats.
        offset: float64 [..., nodes], constant term of the urn, in nats.
        possible: bool [..., nodes], whether both sides of the node have gaps or values.
    """

    counts: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    near: NDArray[np.int32]
    near_offset: NDArray[np.float64]
    offset: NDArray[np.float64]
    possible: NDArray[np.bool_]

    def with_another(self, counts: NDArray[np.float64]) -> Before:
        """Return this and one more time before a change, along the first axis."""
        more = urn_before(counts[None])
        return Before(
            *(np.concatenate(pair) for pair in zip(self._all(), more._all(), strict=True))
        )

    def without(self, index: int) -> Before:
        """Return this without one time before a change, along the first axis."""
        return Before(*(np.delete(one, index, axis=0) for one in self._all()))

    def _all(self) -> tuple[NDArray[Any], ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


def urn_before(counts: NDArray[np.float64]) -> Before:
    """Return what a likelihood ratio needs to know of the time before the change.

    Args:
        counts: float64 [..., BINS], gaps of the baseline plus values since, in each bin.
    """
    left, right = _sides(counts)
    near = np.rint(_TWICE_STRENGTH * (left / np.maximum(left + right, 1))).astype(np.int32)
    near = near.clip(1, _TWICE_STRENGTH - 1)
    near_offset = -_log_beta(near, _TWICE_STRENGTH - near)
    possible = (left > 0) & (right > 0)
    offset = _log_beta(2 * left, 2 * right)
    return Before(counts, left, right, near, near_offset, offset, possible)


def log_ratio(before: Before, total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the likelihood ratio, in nats.

    Args:
        before: of the time before the change, [..., streams, BINS].
        total: float64 [streams, BINS], gaps plus all values, those before the change included.

    Returns:
        float64 [..., streams].
    """
    left, right = _sides(total)
    null = before.offset - _log_beta(2 * left, 2 * right)
    twice_x, twice_y = 2 * (left - before.left), 2 * (right - before.right)
    anything = _log_beta(twice_x + 1, twice_y + 1) - np.log(np.pi)
    near = _log_beta(before.near + twice_x, _TWICE_STRENGTH - before.near + twice_y)
    changed = _bounded_exp(null + anything) + _bounded_exp(null + near + before.near_offset)
    mixed = np.log(1 - PRIOR + np.where(before.possible, PRIOR * changed / 2, PRIOR))
    ordered = mixed[..., :NODES_PER_TREE].sum(-1, dtype=np.float64)
    folded = mixed[..., NODES_PER_TREE:].sum(-1, dtype=np.float64)
    return np.asarray(np.logaddexp(ordered, folded) - np.log(2))


def _bounded_exp(nats: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.exp(np.minimum(nats.astype(np.float32), _MOST))


def _sides(counts: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the counts on the left and on the right of each node."""
    # Not `@`, whose threads cost more than they save on matrices of this size.
    left, right = (np.einsum("...b,bn->...n", counts, side) for side in (LEFT, RIGHT))
    return left.astype(np.int32), right.astype(np.int32)


def _log_beta(twice_a: NDArray[np.int32], twice_b: NDArray[np.int32]) -> NDArray[np.float64]:
    return _log_gamma(twice_a) + _log_gamma(twice_b) - _log_gamma(twice_a + twice_b)


def _log_gamma(twice: NDArray[np.int32]) -> NDArray[np.float64]:
    if twice.size and twice.max() >= _TABLE.size:
        return np.asarray(gammaln(np.maximum(twice, 1) / 2))
    return np.asarray(_TABLE.take(twice, mode="clip"))
