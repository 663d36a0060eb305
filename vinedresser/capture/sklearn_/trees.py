"""Trees of scikit-learn ensembles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.ensemble._forest import BaseForest

from vinedresser.capture.adapters.tree_table import TreeTable

__all__ = ["GrownImportance", "stage_trees"]


class GrownImportance:
    """The feature importance of an ensemble's first stages.

    Equals `feature_importances_` of an ensemble with only these stages: the share in the total
    impurity decrease for gradient boosting, the mean share over the trees for a forest.

    Args:
        estimator: a fitted estimator; other types have no importance.
    """

    def __init__(self, estimator: Any) -> None:
        boosted = isinstance(estimator, (GradientBoostingClassifier, GradientBoostingRegressor))
        known = boosted or isinstance(estimator, BaseForest)
        self._members = list(estimator.estimators_) if known else []
        self._normalize = not boosted
        self._added = 0
        self._sum: Any = 0.0

    def until(self, stage: int) -> NDArray[np.float64] | None:
        """Return the shares after a stage, float64 [features]; call it with ascending stages.

        Args:
            stage: number of the stage, from 0.
        """
        if stage >= len(self._members):
            return None
        for member in self._members[self._added : stage + 1]:
            for tree in np.atleast_1d(np.asarray(member, object)).ravel():
                # A single leaf has no importance.
                if tree.tree_.node_count > 1:
                    found = tree.tree_.compute_feature_importances(normalize=self._normalize)
                    self._sum = self._sum + found
        self._added = max(self._added, stage + 1)
        total = float(np.sum(self._sum))
        return np.asarray(self._sum / total) if total > 0 else None


def stage_trees(estimator: Any, stage: int) -> list[TreeTable]:
    """Return the trees grown in a stage of a fitted ensemble; [] if it has no trees.

    Args:
        estimator: an ensemble, or a single tree as stage 0.
        stage: number of the stage, from 0.
    """
    # Histogram gradient boosting has no public attribute.
    histogram = getattr(estimator, "_predictors", None)
    if histogram is not None:
        return [_histogram_tree(one.nodes, group) for group, one in enumerate(histogram[stage])]
    members = getattr(estimator, "estimators_", None)
    member = estimator if members is None else members[stage]
    grown = member.tolist() if isinstance(member, np.ndarray) else [member]
    return [_tree(one.tree_, group) for group, one in enumerate(grown) if hasattr(one, "tree_")]


def _tree(tree: Any, group: int) -> TreeTable:
    """Convert a tree of `sklearn.tree`.

    The gain is the weighted impurity decrease, as in ``min_impurity_decrease``; the cover is
    the weighted number of samples.
    """
    left, right = tree.children_left, tree.children_right
    weight, impurity = tree.weighted_n_node_samples, tree.impurity
    # For leaves, -1 selects the last node; their values are replaced later.
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
    """Convert a tree of histogram gradient boosting, one structured row per node."""
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
