"""Splits of the bins in two, by which a change is looked for.

They form two binary trees over the same bins: one from low to high, which shows changes of
location, and one from the inside to the outside, which shows changes of spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vinedresser.drift.evidence.bins import BINS

__all__ = ["LEFT", "NODES_PER_TREE", "PRIOR", "RIGHT"]

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
NODES_PER_TREE = BINS - 1

LEFT = np.zeros((BINS, len(_NODES)))
"""float64 [BINS, nodes]: 1 where a bin is on the left of a node. The ordered tree comes first."""
RIGHT = np.zeros((BINS, len(_NODES)))
"""float64 [BINS, nodes]: 1 where a bin is on the right of a node."""
PRIOR = np.array([node.prior for node in _NODES], np.float32)
"""float32 [nodes]: probability that a change affects a node."""
for _column, _node in enumerate(_NODES):
    LEFT[_node.left, _column] = 1
    RIGHT[_node.right, _column] = 1
