"""Trees grown in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
from xgboost import Booster

from vinedresser.capture.adapters.tree_table import TreeTable
from vinedresser.capture.xgboost_.ubjson import read_ubjson

__all__ = ["newest_trees", "serialize"]


def serialize(rounds: Booster) -> bytes:
    """Serialize a booster for `newest_trees`, which may run in another thread.

    Args:
        rounds: a booster with few rounds, so that the cost does not grow during a training.
    """
    return bytes(rounds.save_raw("ubj"))


def newest_trees(document: bytes) -> list[TreeTable]:
    """Return the trees of the newest round: ``num_parallel_tree`` per class or output.

    Args:
        document: a booster from `serialize`.

    Raises:
        CorruptData: The document is not valid.
    """
    gradient_booster = read_ubjson(document)["learner"]["gradient_booster"]
    # DART nests the trees one level deeper.
    model = gradient_booster.get("gbtree", gradient_booster)["model"]
    # The first tree of each round, followed by the total number of trees.
    first = model["iteration_indptr"][-2]
    return [
        _table(tree, int(group))
        for tree, group in zip(model["trees"][first:], model["tree_info"][first:], strict=True)
    ]


def _table(tree: dict[str, Any], group: int) -> TreeTable:
    """Convert a tree from the format of XGBoost."""
    left = tree["left_children"].astype(np.int32)
    right = tree["right_children"].astype(np.int32)
    condition = tree["split_conditions"].astype(np.float32)
    outputs = int(tree["tree_param"]["size_leaf_vector"])
    leaf_value = condition
    if outputs > 1:
        # For a leaf, the right child is the index of its vector.
        vectors = tree["leaf_weights"].astype(np.float32).reshape(-1, outputs)
        leaf_value = vectors[np.where(left < 0, right, 0)]
    categorical = tree["split_type"] == 1
    return TreeTable.of(
        group,
        left=left,
        right=right,
        # uint32; the maximum for a pruned node.
        split_feature=tree["split_indices"].astype(np.int64),
        threshold=np.where(categorical, np.float32(np.nan), condition),
        default_left=tree["default_left"].astype(bool),
        gain=tree["loss_changes"].astype(np.float32),
        cover=tree["sum_hessian"].astype(np.float32),
        leaf_value=leaf_value,
    )
