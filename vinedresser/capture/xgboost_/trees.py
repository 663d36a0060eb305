"""The trees that a round has grown."""

from __future__ import annotations

from typing import Any

import numpy as np
from xgboost import Booster

from vinedresser.capture.adapters.tree_table import TreeTable
from vinedresser.capture.xgboost_.ubjson import read_ubjson

__all__ = ["newest_trees", "written_down"]


def written_down(rounds: Booster) -> bytes:
    """Return a booster as a document, for `newest_trees` to read on whatever thread.

    Args:
        rounds: of trees, few, so that it costs the same in every round of a training.
    """
    return bytes(rounds.save_raw("ubj"))


def newest_trees(document: bytes) -> list[TreeTable]:
    """Return the trees of the newest round: one per class or output, times the forest's.

    Args:
        document: a booster that was written down.

    Raises:
        CorruptData: it is none.
    """
    gradient_booster = read_ubjson(document)["learner"]["gradient_booster"]
    # DART wraps the trees once more.
    model = gradient_booster.get("gbtree", gradient_booster)["model"]
    # Where the trees of each round begin, and where those of the last one end.
    first = model["iteration_indptr"][-2]
    return [
        _table(tree, int(group))
        for tree, group in zip(model["trees"][first:], model["tree_info"][first:], strict=True)
    ]


def _table(tree: dict[str, Any], group: int) -> TreeTable:
    """Return the table of a tree as XGBoost writes it."""
    left = tree["left_children"].astype(np.int32)
    right = tree["right_children"].astype(np.int32)
    condition = tree["split_conditions"].astype(np.float32)
    outputs = int(tree["tree_param"]["size_leaf_vector"])
    leaf_value = condition
    if outputs > 1:
        # In a leaf, the right child is its place among the leaves' vectors.
        vectors = tree["leaf_weights"].astype(np.float32).reshape(-1, outputs)
        leaf_value = vectors[np.where(left < 0, right, 0)]
    categorical = tree["split_type"] == 1
    return TreeTable.of(
        group,
        left=left,
        right=right,
        # Of a pruned node it is the greatest number of 32 bits.
        split_feature=tree["split_indices"].astype(np.int64),
        threshold=np.where(categorical, np.float32(np.nan), condition),
        default_left=tree["default_left"].astype(bool),
        gain=tree["loss_changes"].astype(np.float32),
        cover=tree["sum_hessian"].astype(np.float32),
        leaf_value=leaf_value,
    )
