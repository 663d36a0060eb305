"""Decision trees as columns of numbers, from whatever library grew them.

Shape legend: N nodes of a tree, L numbers in a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.tensor_copier import ArrayCopier

__all__ = ["TreeTable", "keep_trees", "tree_names"]


@dataclass(frozen=True)
class TreeTable:
    """The nodes of one tree that can be reached from its root, which is the first.

    Attributes:
        group: the class or output that the tree is of, from 0.
        node: int32 [N], the number of each node in its library.
        left: int32 [N], the number of the left child; -1 in a leaf.
        right: int32 [N], the number of the right child; -1 in a leaf.
        split_feature: int32 [N], the number of the feature that is compared; -1 in a leaf.
        threshold: float32 or float64 [N], what it is compared with; NaN in a leaf and where the
            split is one of categories.
        default_left: bool [N], whether a missing value goes to the left.
        gain: float [N], what the split gains, as the library counts it; 0 in a leaf.
        cover: float [N], weight of the training rows that come by, as the library counts it.
        leaf_value: float [N] or [N, L], what a leaf adds; NaN elsewhere.
    """

    group: int
    node: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    split_feature: NDArray[np.int32]
    threshold: NDArray[np.floating]
    default_left: NDArray[np.bool_]
    gain: NDArray[np.floating]
    cover: NDArray[np.floating]
    leaf_value: NDArray[np.floating]

    @classmethod
    def of(
        cls,
        group: int,
        *,
        left: NDArray[np.integer],
        right: NDArray[np.integer],
        split_feature: NDArray[np.integer],
        threshold: NDArray[np.floating],
        default_left: NDArray[np.bool_],
        gain: NDArray[np.floating],
        cover: NDArray[np.floating],
        leaf_value: NDArray[np.floating],
    ) -> TreeTable:
        """Build it from a library's columns, one row per node, the root first.

        What the columns hold where it means nothing, such as the threshold of a leaf, is replaced.
        """
        node = _reachable(left, right)
        leaf = left[node] < 0
        value = leaf_value[node].copy()
        value[~leaf] = np.nan
        return cls(
            group,
            node.astype(np.int32),
            np.where(leaf, -1, left[node]).astype(np.int32),
            np.where(leaf, -1, right[node]).astype(np.int32),
            np.where(leaf, -1, split_feature[node]).astype(np.int32),
            np.where(leaf, threshold.dtype.type(np.nan), threshold[node]),
            default_left[node] & ~leaf,
            np.where(leaf, gain.dtype.type(0), gain[node]),
            cover[node],
            value,
        )

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        return int(np.count_nonzero(self.left < 0))

    @property
    def depth(self) -> int:
        """Splits on the longest way from the root to a leaf; 0 of a lone leaf."""
        place = np.zeros(int(self.node.max()) + 1, np.int64)
        place[self.node] = np.arange(len(self.node))
        level, depth = np.array([0]), -1
        while len(level):
            depth += 1
            inner = level[self.left[level] >= 0]
            level = place[np.concatenate([self.left[inner], self.right[inner]])]
        return depth


_COLUMNS = tuple(one.name for one in fields(TreeTable) if one.name != "group")


def tree_names(prefix: str = "") -> list[str]:
    """Return the names of all that `keep_trees` may keep of trees of one group."""
    words = ("depth", "leaves", "nodes", "tree", "group", *_COLUMNS)
    return [f"trees/{prefix}{word}" for word in words]


def keep_trees(
    recording: Recording, copier: ArrayCopier, trees: Sequence[TreeTable], prefix: str = ""
) -> None:
    """Take what is asked of the trees that a step has grown.

    ``trees/depth`` (of the deepest), ``trees/leaves`` and ``trees/nodes`` (of all) are scalars; of
    trees of several groups they are ``trees/depth[<group>]`` and so on. The columns of all trees
    are laid end to end: ``trees/tree`` [nodes of all] tells them apart, and ``trees/group`` [trees]
    says what each is of.

    Args:
        recording: takes them.
        copier: copies the columns.
        trees: in the order in which they were grown; at least one.
        prefix: comes before the names, such as "fold0.".
    """
    groups = sorted({tree.group for tree in trees})
    for group in groups:
        mine = [tree for tree in trees if tree.group == group]
        place = f"[{group}]" if len(groups) > 1 else ""
        figures = {
            "depth": max(tree.depth for tree in mine),
            "leaves": sum(tree.leaves for tree in mine),
            "nodes": sum(len(tree.node) for tree in mine),
        }
        for word, figure in figures.items():
            name = f"trees/{prefix}{word}{place}"
            if recording.due.ask(name):
                recording.add_scalar(name, float(figure))
    for column, values in _end_to_end(trees).items():
        name = f"trees/{prefix}{column}"
        if ask := recording.due.ask(name):
            copier.keep(recording, name, values, ask)


def _end_to_end(trees: Sequence[TreeTable]) -> dict[str, NDArray[Any]]:
    """Return the columns of all trees, one tree after the other."""
    numbers = np.arange(len(trees), dtype=np.int32)
    together = {
        column: np.concatenate([getattr(tree, column) for tree in trees]) for column in _COLUMNS
    }
    return {
        "tree": np.repeat(numbers, [len(tree.node) for tree in trees]),
        "group": np.array([tree.group for tree in trees], np.int32),
        **together,
    }


def _reachable(left: NDArray[np.integer], right: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the numbers of the nodes below the root and of itself, ascending.

    Pruned nodes stay in a library's arrays, where nothing points to them.
    """
    found = [np.array([0])]
    while len(found[-1]):
        level = found[-1][left[found[-1]] >= 0]
        found.append(np.concatenate([left[level], right[level]]))
    return np.sort(np.concatenate(found)).astype(np.int64)
