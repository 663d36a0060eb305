"""The trees of scikit-learn's ensembles."""

from __future__ import annotations

from typing import Any

import numpy as np

from vinedresser.capture.tree_table import TreeTable

__all__ = ["stage_trees"]


def stage_trees(estimator: Any, stage: int) -> list[TreeTable]:
    """Return the trees that a stage of a fitted ensemble has grown; [] where it has no trees.

    Args:
        estimator: an ensemble, or a single tree, which is its stage 0.
        stage: number of the stage, from 0.
    """
    # Of histogram gradient boosting they are not public.
    histogram = getattr(estimator, "_predictors", None)
    if histogram is not None:
        return [_histogram_tree(one.nodes, group) for group, one in enumerate(histogram[stage])]
    members = getattr(estimator, "estimators_", None)
    member = estimator if members is None else members[stage]
    grown = member.tolist() if isinstance(member, np.ndarray) else [member]
    return [_tree(one.tree_, group) for group, one in enumerate(grown) if hasattr(one, "tree_")]


def _tree(tree: Any, group: int) -> TreeTable:
    """Return the table of a `sklearn.tree` tree.

    The gain is the weighted impurity decrease, as ``min_impurity_decrease`` has it; the cover is
    the weighted number of samples.
    """
    left, right = tree.children_left, tree.children_right
    weight, impurity = tree.weighted_n_node_samples, tree.impurity
    # In a leaf, -1 points to the last node; what comes of that is replaced.
    below = (weight[left] * impurity[left] + weight[right] * impurity[right]) / weight
    missing_left = getattr(tree, "missing_go_to_left", np.zeros(len(left), bool))
    value = tree.value[:, 0, :] if tree.value.shape[1] == 1 else tree.value[:, :, 0]
    return TreeTable.of(
        group,
        left=left,
        right=right,
        split_feature=tree.feature,
        threshold=tree.threshold,
        default_left=np.asarray(missing_left, bool),
        gain=weight / weight[0] * (impurity - below),
        cover=weight,
        leaf_value=value[:, 0] if value.shape[1] == 1 else value,
    )


def _histogram_tree(nodes: Any, group: int) -> TreeTable:
    """Return the table of a tree of histogram gradient boosting, one structured row per node."""
    leaf = nodes["is_leaf"] != 0
    return TreeTable.of(
        group,
        left=np.where(leaf, -1, nodes["left"].astype(np.int64)),
        right=np.where(leaf, -1, nodes["right"].astype(np.int64)),
        split_feature=nodes["feature_idx"],
        threshold=np.where(nodes["is_categorical"] != 0, np.nan, nodes["num_threshold"]),
        default_left=nodes["missing_go_to_left"] != 0,
        gain=np.asarray(nodes["gain"], np.float64),
        cover=nodes["count"].astype(np.float64),
        leaf_value=np.asarray(nodes["value"], np.float64),
    )
