"""Stages of a completed fit: trees, boosting rounds or epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.ensemble._forest import BaseForest
from sklearn.utils import check_array

from vinedresser.capture.adapters.tree_table import TreeTable
from vinedresser.capture.sklearn_.prediction import Prediction, class_numbers

__all__ = ["Stages", "stages_of"]

_FORESTS = (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)


@dataclass(frozen=True)
class Stages:
    """The stages of a fit.

    Attributes:
        count: number of stages.
        predict: yields the prediction after each stage for rows in the estimator's input format;
            None if only the last is known.
        trees: returns the trees of a stage.
        importance: returns the share of each feature in the trees up to a stage, float64
            [features]; None if unknown.
        objective: the estimator's own training loss by stage; [] if unknown.
        validation: the estimator's own score on held-out rows by stage; [] if there is none.
    """

    count: int
    predict: Callable[[Any], Iterator[Prediction]] | None = None
    trees: Callable[[int], list[TreeTable]] = field(default=lambda _stage: [])
    importance: Callable[[int], NDArray[np.float64] | None] = field(default=lambda _stage: None)
    objective: Sequence[float] = ()
    validation: Sequence[float] = ()


def stages_of(estimator: Any) -> Stages | None:
    """Return the stages of a fitted estimator; None if it has none."""

    def trees(stage: int) -> list[TreeTable]:
        return _stage_trees(estimator, stage)

    importance = _GrownImportance(estimator).until
    if hasattr(estimator, "loss_curve_"):
        scores = getattr(estimator, "validation_scores_", None) or ()
        curve = estimator.loss_curve_
        return Stages(len(curve), objective=curve, validation=scores) if curve else None
    if hasattr(estimator, "staged_predict"):
        count = getattr(estimator, "n_iter_", None) or len(estimator.estimators_)
        objective, validation = _own_scores(estimator, count)
        return Stages(count, _staged(estimator), trees, importance, objective, validation)
    if isinstance(estimator, _FORESTS) and estimator.n_outputs_ == 1:
        return Stages(len(estimator.estimators_), _growing_forest(estimator), trees, importance)
    if hasattr(estimator, "tree_"):
        return Stages(1, trees=trees)
    return None


def _own_scores(estimator: Any, count: int) -> tuple[list[float], list[float]]:
    """Return the training losses and the held-out scores by stage of a boosted ensemble."""
    scores = np.asarray(getattr(estimator, "train_score_", ()), np.float64)
    held_out = np.asarray(getattr(estimator, "validation_score_", ()), np.float64)
    if hasattr(estimator, "_predictors"):
        # Histogram gradient boosting starts with the score before the first stage, and uses the
        # parameter `scoring`, where "loss" is the negative loss.
        is_loss = estimator.scoring == "loss"
        return (-scores[1:] if is_loss else scores[:0]).tolist(), held_out[1:].tolist()
    return (scores if len(scores) == count else scores[:0]).tolist(), held_out.tolist()


def _staged(estimator: Any) -> Callable[[Any], Iterator[Prediction]]:
    """Return a function that yields the predictions of a boosted ensemble by stage."""

    def classes(x: Any) -> Iterator[Prediction]:
        for values in estimator.staged_predict_proba(x):
            yield Prediction("probability", values.copy(), values.argmax(axis=1))

    def labels(x: Any) -> Iterator[Prediction]:
        for values in estimator.staged_predict(x):
            numbers = class_numbers(values, estimator.classes_)
            yield Prediction("class", numbers, numbers)

    def numbers(x: Any) -> Iterator[Prediction]:
        for values in estimator.staged_predict(x):
            yield Prediction("value", values.copy())

    if not is_classifier(estimator):
        return numbers
    return classes if hasattr(estimator, "staged_predict_proba") else labels


def _growing_forest(forest: Any) -> Callable[[Any], Iterator[Prediction]]:
    """Return a function that yields the predictions of a forest's first 1, 2, ... trees.

    The prediction of a forest is the mean of its trees' predictions.
    """

    def predictions(x: Any) -> Iterator[Prediction]:
        rows = check_array(x, accept_sparse="csr", dtype=np.float32, ensure_all_finite=False)
        total: Any = 0.0
        for number, tree in enumerate(forest.estimators_, 1):
            if is_classifier(forest):
                total = total + tree.predict_proba(rows)
                mean = total / number
                yield Prediction("probability", mean, mean.argmax(axis=1))
            else:
                total = total + tree.predict(rows)
                yield Prediction("value", total / number)

    return predictions


class _GrownImportance:
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


def _stage_trees(estimator: Any, stage: int) -> list[TreeTable]:
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
