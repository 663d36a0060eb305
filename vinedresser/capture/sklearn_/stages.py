"""The stages of a fit, looked at when it is over: trees, rounds of boosting, epochs."""

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
    """What there is to see of a fit's stages.

    Attributes:
        count: how many there are.
        predict: yields the prediction after each stage, of rows as the estimator itself takes
            them; None where only the last is known.
        trees: returns the trees of a stage.
        importance: returns the share of each feature in the trees up to a stage, where it is known.
        objective: by stage, the loss as the estimator itself counts it, on what it trained on;
            [] where it does not say.
        validation: by stage, the estimator's own score on rows that it has set aside; [] without.
    """

    count: int
    predict: Callable[[Any], Iterator[Prediction]] | None = None
    trees: Callable[[int], list[TreeTable]] = field(default=lambda _stage: [])
    importance: Callable[[int], NDArray[np.float64] | None] = field(default=lambda _stage: None)
    objective: Sequence[float] = ()
    validation: Sequence[float] = ()


def stages_of(estimator: Any) -> Stages | None:
    """Return the stages of a fitted estimator; None of one that has none."""

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
    """Return the losses by stage, and the scores on rows set aside, as a booster has kept them."""
    scores = np.asarray(getattr(estimator, "train_score_", ()), np.float64)
    aside = np.asarray(getattr(estimator, "validation_score_", ()), np.float64)
    if hasattr(estimator, "_predictors"):
        # Histogram gradient boosting scores the state before the first stage too, and by its
        # parameter `scoring`, "loss" being the negative loss.
        is_loss = estimator.scoring == "loss"
        return (-scores[1:] if is_loss else scores[:0]).tolist(), aside[1:].tolist()
    return (scores if len(scores) == count else scores[:0]).tolist(), aside.tolist()


def _staged(estimator: Any) -> Callable[[Any], Iterator[Prediction]]:
    """Return what yields the predictions of a boosted ensemble."""

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
    """Return what yields the predictions of a forest's first tree, its first two, and so on.

    A forest's prediction is the mean of its trees'.
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
