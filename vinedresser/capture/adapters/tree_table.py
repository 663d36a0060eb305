"""Decision trees of any library as columns of numbers.

Shapes: N nodes of a tree, L values per leaf.
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
    """The nodes of one tree that are reachable from its root, root first.

    Attributes:
        group: index of the tree's class or output.
        node: int32 [N], node number in the library.
        left: int32 [N], node number of the left child; -1 in a leaf.
        right: int32 [N], node number of the right child; -1 in a leaf.
        split_feature: int32 [N], index of the split's feature; -1 in a leaf.
        threshold: float32 or float64 [N], threshold of the split; NaN in a leaf and for a
            categorical split.
        default_left: bool [N], whether missing values go left.
        gain: float [N], gain of the split as defined by the library; 0 in a leaf.
        cover: float [N], weight of the training rows in the node as defined by the library.
        leaf_value: float [N] or [N, L], value of the leaf; NaN elsewhere.
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
        """Build the table from a library's columns, one row per node, root first.

        Meaningless entries, such as the threshold of a leaf, are replaced.

        Args:
            group: index of the tree's class or output.
            left: integer [M], row of the left child; negative in a leaf.
            right: integer [M], row of the right child; negative in a leaf.
            split_feature: integer [M].
            threshold: float [M].
            default_left: bool [M].
            gain: float [M].
            cover: float [M].
            leaf_value: float [M] or [M, L].
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
        """Number of leaves."""
        return int(np.count_nonzero(self.left < 0))

    @property
    def depth(self) -> int:
        """Number of splits on the longest path from the root to a leaf."""
        place = np.zeros(int(self.node.max()) + 1, np.int64)
        place[self.node] = np.arange(len(self.node))
        level, depth = np.array([0]), -1
        while len(level):
            depth += 1
            inner = level[self.left[level] >= 0]
            level = place[np.concatenate([self.left[inner], self.right[inner]])]
        return depth


_COLUMNS = tuple(field.name for field in fields(TreeTable) if field.name != "group")


def tree_names(prefix: str = "") -> list[str]:
    """Return the names that `keep_trees` may use for trees of one group."""
    words = ("depth", "leaves", "nodes", "tree", "group", *_COLUMNS)
    return [f"trees/{prefix}{word}" for word in words]


def keep_trees(
    recording: Recording, copier: ArrayCopier, trees: Sequence[TreeTable], prefix: str = ""
) -> None:
    """Capture the requested statistics and columns of the trees grown in a step.

    The scalars are ``trees/depth`` (maximum), ``trees/leaves`` and ``trees/nodes`` (totals), or
    ``trees/depth[<group>]`` etc. if there are several groups. The columns of all trees are
    concatenated; ``trees/tree``, int32 [total nodes], is the index of the tree, and
    ``trees/group``, int32 [trees], the group of each tree.

    Args:
        copier: copies the columns.
        trees: trees in the order they were grown; at least one.
        prefix: prefix of the names, such as "fold0.".
    """
    groups = sorted({tree.group for tree in trees})
    for group in groups:
        mine = [tree for tree in trees if tree.group == group]
        place = f"[{group}]" if len(groups) > 1 else ""
        totals = {
            "depth": max(tree.depth for tree in mine),
            "leaves": sum(tree.leaves for tree in mine),
            "nodes": sum(len(tree.node) for tree in mine),
        }
        for word, total in totals.items():
            name = f"trees/{prefix}{word}{place}"
            if recording.due.ask(name):
                recording.add_scalar(name, float(total))
    for column, values in _end_to_end(trees).items():
        name = f"trees/{prefix}{column}"
        if ask := recording.due.ask(name):
            copier.keep(recording, name, values, ask)


def _end_to_end(trees: Sequence[TreeTable]) -> dict[str, NDArray[Any]]:
    """Return the concatenated columns of all trees."""
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
    """Return the rows reachable from row 0, ascending; int64 [N].

    Libraries leave pruned nodes in their arrays.
    """
    found = [np.array([0])]
    while len(found[-1]):
        level = found[-1][left[found[-1]] >= 0]
        found.append(np.concatenate([left[level], right[level]]))
    return np.sort(np.concatenate(found)).astype(np.int64)
