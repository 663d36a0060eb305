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
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.utils import check_array

from vinedresser.capture.adapters.tree_table import TreeTable
from vinedresser.capture.sklearn_.prediction import Prediction, class_numbers
from vinedresser.capture.sklearn_.trees import GrownImportance, stage_trees

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
        return stage_trees(estimator, stage)

    importance = GrownImportance(estimator).until
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
