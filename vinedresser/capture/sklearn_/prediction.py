"""What an estimator predicts, and how good that is.

Shape legend: R rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

__all__ = ["FIGURES", "Kind", "Prediction", "class_numbers", "figures", "predict"]

# What a prediction consists of: probabilities [R, K], values of a decision function ([R] for two
# classes, else [R, K]), class numbers [R], or values of a regression [R] or [R, outputs].
Kind = Literal["probability", "decision", "class", "value"]
FIGURES = (
    "losses/hinge_loss",
    "losses/log_loss",
    "losses/mse",
    "metrics/accuracy",
    "metrics/r2",
)


@dataclass(frozen=True)
class Prediction:
    """What was predicted of some rows.

    Attributes:
        kind: what it consists of.
        values: the prediction.
        classes: int64 [R], the numbers of the predicted classes; None of a regression.
    """

    kind: Kind
    values: NDArray[Any]
    classes: NDArray[np.int64] | None = None


def class_numbers(labels: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each label among the sorted classes; -1 of one that is none of them."""
    given = np.asarray(labels)
    place = np.searchsorted(classes, given).clip(0, len(classes) - 1)
    return np.where(classes[place] == given, place, -1).astype(np.int64)


def predict(estimator: Any, x: Any) -> Prediction | None:
    """Return what a fitted estimator predicts of rows; None of several labels, or of none.

    Probabilities where it has them, else its decision function, else classes.
    """
    if is_regressor(estimator):
        return Prediction("value", np.asarray(estimator.predict(x)))
    classes = getattr(estimator, "classes_", None)
    if not is_classifier(estimator) or not isinstance(classes, np.ndarray):
        return None
    labels = np.asarray(estimator.predict(x))
    if labels.ndim != 1:
        return None
    numbers = class_numbers(labels, classes)
    if hasattr(estimator, "predict_proba"):
        return Prediction("probability", np.asarray(estimator.predict_proba(x)), numbers)
    if hasattr(estimator, "decision_function"):
        return Prediction("decision", np.asarray(estimator.decision_function(x)), numbers)
    return Prediction("class", numbers, numbers)


def figures(prediction: Prediction, targets: NDArray[Any]) -> dict[str, float]:
    """Return losses and metrics, by their full names (`FIGURES`).

    Args:
        prediction: of R rows.
        targets: class numbers [R], -1 of classes that the estimator does not know; or values.
    """
    found: dict[str, float] = {}
    if prediction.classes is None:
        return _regression(prediction.values, np.asarray(targets, np.float64))
    if prediction.kind == "probability":
        found["losses/log_loss"] = _log_loss(prediction.values, targets)
    elif prediction.kind == "decision":
        hinge = _hinge_loss(prediction.values, targets)
        if hinge is not None:
            found["losses/hinge_loss"] = hinge
    found["metrics/accuracy"] = float(np.mean(prediction.classes == targets))
    return found


def _regression(values: NDArray[Any], targets: NDArray[np.float64]) -> dict[str, float]:
    """Return mean squared error and coefficient of determination, means over the outputs."""
    error = (targets - values.reshape(targets.shape)) ** 2
    found = {"losses/mse": float(error.mean())}
    spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    # Of targets that are all the same it is not defined.
    if np.all(spread > 0):
        found["metrics/r2"] = float(np.mean(1 - error.sum(axis=0) / spread))
    return found


def _log_loss(probabilities: NDArray[Any], targets: NDArray[Any]) -> float:
    """Return the mean of -ln(p of the true class), with p clipped by the precision of its type."""
    rows = np.arange(len(targets))
    of_true = np.where(targets >= 0, probabilities[rows, targets], 0)
    least = np.finfo(probabilities.dtype).eps
    return float(-np.log(np.clip(of_true, least, 1 - least).astype(np.float64)).mean())


def _hinge_loss(decision: NDArray[Any], targets: NDArray[Any]) -> float | None:
    """Return the mean of max(0, 1 - margin); None where the decision is not one per class.

    The margin is the decision of the true class minus the greatest of the others (Crammer and
    Singer, JMLR 2, 2001); of two classes the decision, negative of the first class.
    """
    if decision.ndim == 1:
        margin = np.where(targets == 1, decision, -decision)
    elif targets.min(initial=0) < 0 or targets.max(initial=0) >= decision.shape[1]:
        return None
    else:
        rows = np.arange(len(targets))
        others = decision.copy()
        others[rows, targets] = -np.inf
        margin = decision[rows, targets] - others.max(axis=1)
    return float(np.maximum(0, 1 - margin).mean())
