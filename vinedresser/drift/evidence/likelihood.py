"""Likelihood ratio of a change of the shares of bins, against the Pólya urn of no change.

The urn is a product of independent beta-binomial laws, one for each node of a tree over the bins.
In the alternative, each node's share has either stayed or changed, independently of the other nodes
(compare Holmes et al., *Two-sample Bayesian nonparametric hypothesis testing*, Bayesian Analysis
2015). Without drift, the ratio is a martingale, since both are laws of the same sequence of values,
and the first one holds.

Values of each phase of a cycle are ranked among those of the baseline in that phase, and have an
urn of their own. Without drift, the law of all values is the product of the laws of the urns. In
the alternative a node's share is the same in all phases, since the shares of ranks are. Any law of
the sequence may be an alternative, so the ratio is a martingale still.

A small part of the alternative is that all shares have changed to any others (a Dirichlet law with
parameters that sum up to 1). It finds a gross change, after which all values are in one bin, from
very few values, such as the independent ones among those that depend on each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from vinedresser.drift.evidence.bins import BINS

__all__ = ["Seen", "Urn", "array_of", "log_ratio"]

# A changed share is near the one before (a beta law with parameters of this sum), or anything.
_TWICE_STRENGTH = 64
# Evidence of a node that is counted at most, in nats: what float32 can hold. Less is always valid.
_MOST = np.float32(80.0)
# Weight of the alternative that all shares have changed.
_ALL = 0.02
# log Γ(k / 2). Counts are integers, and parameters multiples of 1/2.
_TABLE = gammaln(np.maximum(np.arange(1 << 17), 1) / 2)

# Nodes split bins in two. They form two binary trees over the same bins: one from low to high shows
# changes of location, one from the inside to the outside those of spread.
_HALF = BINS // 2


class _Node(NamedTuple):
    prior: float
    left: list[int]
    right: list[int]


def _mirrored(bins: list[int]) -> list[int]:
    return [BINS - 1 - one for one in bins]


def _ordered_tree() -> list[_Node]:
    """Return the splits at the median, and from there at the quantiles towards either end."""
    tree = [_Node(0.5, list(range(_HALF)), list(range(_HALF, BINS)))]
    quartile = _HALF - 2
    lower = [_Node(0.3, list(range(quartile)), [quartile, quartile + 1])]
    lower.append(_Node(0.12, [quartile], [quartile + 1]))
    lower += [_Node(0.12, list(range(inner)), [inner]) for inner in range(quartile - 1, 0, -1)]
    upper = [_Node(one.prior, _mirrored(one.left), _mirrored(one.right)) for one in lower]
    return tree + lower + upper


def _folded_tree() -> list[_Node]:
    """Return the same splits for both sides together, and then of each pair of bins by side."""
    quartile = _HALF - 2

    def both(bins: list[int]) -> list[int]:
        return bins + _mirrored(bins)

    tree = [_Node(0.5, both(list(range(quartile))), both([quartile, quartile + 1]))]
    tree.append(_Node(0.12, both([quartile]), both([quartile + 1])))
    tree.append(_Node(0.3, both(list(range(quartile - 1))), both([quartile - 1])))
    tree += [
        _Node(0.12, both(list(range(inner))), both([inner])) for inner in range(quartile - 2, 0, -1)
    ]
    return tree + [_Node(0.06, [one], [BINS - 1 - one]) for one in range(_HALF)]


_NODES = _ordered_tree() + _folded_tree()
_NODES_PER_TREE = BINS - 1

_LEFT = np.zeros((BINS, len(_NODES)))
"""float64 [BINS, nodes]: 1 where a bin is on the left of a node. The ordered tree comes first."""
_RIGHT = np.zeros((BINS, len(_NODES)))
"""float64 [BINS, nodes]: 1 where a bin is on the right of a node."""
_PRIOR = np.array([node.prior for node in _NODES], np.float32)
"""float32 [nodes]: probability that a change affects a node."""
for _column, _node in enumerate(_NODES):
    _LEFT[_node.left, _column] = 1
    _RIGHT[_node.right, _column] = 1

# Of the law of a change of all shares: parameters on either side of the ordered tree's nodes.
_ALL_LEFT, _ALL_RIGHT = (side[:, :_NODES_PER_TREE].sum(0) / BINS for side in (_LEFT, _RIGHT))


class Seen(NamedTuple):
    """What urns have seen up to some time.

    Args:
        left: float64 [..., streams, nodes], gaps and values on the left of each node, in the phases
            in which both of its sides have gaps.
        right: float64 [..., streams, nodes], those on the right of it.
        law: float64 [..., streams, nodes], log of the probability of the values, in nats.
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]
    law: NDArray[np.float64]


class Urn:
    """Pólya urns of several streams, one for each phase.

    Args:
        gaps: float64 [streams, phases, BINS], gaps between baseline values in each bin.
    """

    def __init__(self, gaps: NDArray[np.float64]) -> None:
        self.total = gaps.copy()
        """float64 [streams, phases, BINS], gaps plus all values so far."""
        self.seen = Seen(*(np.zeros((len(gaps), len(_PRIOR))) for _ in Seen._fields))
        # With gaps on one side of a node only, all values are on that side.
        self._open = np.logical_and(*(side > 0 for side in _sides(gaps)))
        left, right = (self._in_open(side) for side in _sides(gaps))
        self.seen = self.seen._replace(left=left, right=right)

    def add(self, counts: NDArray[np.float64]) -> None:
        """Add values.

        Args:
            counts: float64 [streams, phases, BINS], integers.
        """
        phases = np.flatnonzero(counts.any((0, 2)))
        before, more = self.total[:, phases], counts[:, phases]
        self.total[:, phases] += more
        left, right = _sides(before)
        more_left, more_right = _sides(more)
        law = _log_beta(2 * (left + more_left), 2 * (right + more_right))
        law -= _log_beta(2 * left, 2 * right)
        parts = zip(self.seen, (more_left, more_right, law), strict=True)
        self.seen = Seen(*(old + self._in_open(new, phases) for old, new in parts))

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "total": self.total.astype(int).tolist(),
            **{name: one.tolist() for name, one in self.seen._asdict().items()},
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        self.total = array_of(state, "total", self.total.shape)
        shape = self.seen.law.shape
        self.seen = Seen(*(array_of(state, name, shape) for name in Seen._fields))

    def _in_open(
        self, values: NDArray[np.float64], phases: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.float64]:
        return np.asarray(np.where(self._open[:, phases], values, 0).sum(1))


def log_ratio(before: Seen, now: Seen) -> NDArray[np.float64]:
    """Return the log of the likelihood ratio of a change at some time, in nats.

    Args:
        before: what was seen up to that time, [..., streams, nodes].
        now: what was seen up to now, [streams, nodes].

    Returns:
        float64 [..., streams].
    """
    twice_x, twice_y = 2 * (now.left - before.left), 2 * (now.right - before.right)
    null = now.law - before.law
    share = before.left / np.maximum(before.left + before.right, 1)
    near = np.rint(_TWICE_STRENGTH * share).clip(1, _TWICE_STRENGTH - 1)
    anything = _log_beta(twice_x + 1, twice_y + 1) - np.log(np.pi)
    nearby = _log_beta(near + twice_x, _TWICE_STRENGTH - near + twice_y)
    nearby -= _log_beta(near, _TWICE_STRENGTH - near)
    changed = _bounded_exp(anything - null) + _bounded_exp(nearby - null)
    mixed = np.log(1 - _PRIOR + _PRIOR * changed / 2)
    ordered = mixed[..., :_NODES_PER_TREE].sum(-1, dtype=np.float64)
    folded = mixed[..., _NODES_PER_TREE:].sum(-1, dtype=np.float64)
    some = np.logaddexp(ordered, folded) - np.log(2)
    x, y = (twice[..., :_NODES_PER_TREE] / 2 for twice in (twice_x, twice_y))
    law = betaln(x + _ALL_LEFT, y + _ALL_RIGHT) - betaln(_ALL_LEFT, _ALL_RIGHT)
    every = (law - null[..., :_NODES_PER_TREE]).sum(-1)
    return np.asarray(np.logaddexp(np.log(1 - _ALL) + some, np.log(_ALL) + every))


def array_of(state: dict[str, Any], key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an array of a state.

    Args:
        state: JSON object.
        key: of a list, or list of lists, of numbers.
        shape: that it must have.

    Raises:
        ValueError: it has another shape, or values that are not finite numbers.
    """
    # An empty list has lost its shape.
    found = np.array(state[key], dtype=np.float64)
    if found.size == 0 and 0 in shape:
        return np.empty(shape)
    if found.shape != shape or not np.isfinite(found).all():
        raise ValueError(f"{key}: expected finite numbers of shape {list(shape)}")
    return found


def _bounded_exp(nats: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.exp(np.minimum(nats.astype(np.float32), _MOST))


def _sides(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the counts on the left and on the right of each node, [..., nodes]."""
    # Not `@`, whose threads cost more than they save on matrices of this size.
    left, right = (np.einsum("...b,bn->...n", counts, side) for side in (_LEFT, _RIGHT))
    return left, right


def _log_beta(twice_a: NDArray[np.float64], twice_b: NDArray[np.float64]) -> NDArray[np.float64]:
    return _log_gamma(twice_a) + _log_gamma(twice_b) - _log_gamma(twice_a + twice_b)


def _log_gamma(twice: NDArray[np.float64]) -> NDArray[np.float64]:
    if twice.size and twice.max() >= _TABLE.size:
        return np.asarray(gammaln(np.maximum(twice, 1) / 2))
    return np.asarray(_TABLE.take(twice.astype(np.int32), mode="clip"))
