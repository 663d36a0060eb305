"""The trees that a round has grown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from xgboost import Booster

from vinedresser.capture.tree_table import TreeTable

__all__ = ["newest_trees"]


def newest_trees(booster: Booster) -> list[TreeTable]:
    """Return the trees of the newest round: one per class or output, times the forest's.

    Only that round is cut out and written down, so that it costs the same in every round.

    Args:
        booster: of trees; it has a round at least.
    """
    rounds = booster.num_boosted_rounds()
    document = json.loads(bytes(booster[rounds - 1 : rounds].save_raw("json")))
    gradient_booster = document["learner"]["gradient_booster"]
    # DART wraps the trees once more.
    model = gradient_booster.get("gbtree", gradient_booster)["model"]
    return [
        _table(tree, int(group))
        for tree, group in zip(model["trees"], model["tree_info"], strict=True)
    ]


def _table(tree: dict[str, Any], group: int) -> TreeTable:
    """Return the table of a tree as XGBoost writes it."""
    left = np.array(tree["left_children"], np.int32)
    right = np.array(tree["right_children"], np.int32)
    condition = np.array(tree["split_conditions"], np.float32)
    outputs = int(tree["tree_param"]["size_leaf_vector"])
    leaf_value = condition
    if outputs > 1:
        # In a leaf, the right child is its place among the leaves' vectors.
        vectors = np.array(tree["leaf_weights"], np.float32).reshape(-1, outputs)
        leaf_value = vectors[np.where(left < 0, right, 0)]
    categorical = np.array(tree["split_type"], np.int32) == 1
    return TreeTable.of(
        group,
        left=left,
        right=right,
        # Of a pruned node it is the greatest number of 32 bits.
        split_feature=np.array(tree["split_indices"], np.int64),
        threshold=np.where(categorical, np.float32(np.nan), condition),
        default_left=np.array(tree["default_left"], bool),
        gain=np.array(tree["loss_changes"], np.float32),
        cover=np.array(tree["sum_hessian"], np.float32),
        leaf_value=leaf_value,
    )
