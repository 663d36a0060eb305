"""Predictions of an estimator, with their losses and metrics.

Shape legend: R rows, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

__all__ = ["SCORES", "Kind", "Prediction", "class_numbers", "predict", "scores"]

# Content of a prediction: probabilities [R, K], values of a decision function ([R] for two classes,
# else [R, K]), class numbers [R], or values of a regression [R] or [R, outputs].
Kind = Literal["probability", "decision", "class", "value"]
SCORES = (
    "losses/hinge_loss",
    "losses/log_loss",
    "losses/mse",
    "metrics/accuracy",
    "metrics/r2",
)


@dataclass(frozen=True)
class Prediction:
    """A prediction for R rows.

    Attributes:
        kind: content of `values`.
        values: the prediction; its shape depends on `kind`.
        classes: int64 [R], numbers of the predicted classes; None for a regression.
    """

    kind: Kind
    values: NDArray[Any]
    classes: NDArray[np.int64] | None = None


def class_numbers(labels: Any, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of each label in the sorted classes, int64; -1 for unknown labels."""
    given = np.asarray(labels)
    place = np.searchsorted(classes, given).clip(0, len(classes) - 1)
    return np.where(classes[place] == given, place, -1).astype(np.int64)


def predict(estimator: Any, x: Any) -> Prediction | None:
    """Return the prediction of a fitted estimator; None for multi-label or unsupervised ones.

    A classifier gives probabilities if it can, else its decision function, else classes.
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


def scores(prediction: Prediction, targets: NDArray[Any]) -> dict[str, float]:
    """Return losses and metrics by full name (see `SCORES`).

    Args:
        prediction: prediction for R rows.
        targets: class numbers int64 [R], -1 for unknown classes; or values [R] or [R, outputs].
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
    """Return mean squared error and R², averaged over the outputs."""
    error = (targets - values.reshape(targets.shape)) ** 2
    found = {"losses/mse": float(error.mean())}
    spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    # R² is not defined for constant targets.
    if np.all(spread > 0):
        found["metrics/r2"] = float(np.mean(1 - error.sum(axis=0) / spread))
    return found


def _log_loss(probabilities: NDArray[Any], targets: NDArray[Any]) -> float:
    """Return the mean of -ln(p), p of the true class clipped to [eps, 1 - eps] of its dtype."""
    rows = np.arange(len(targets))
    of_true = np.where(targets >= 0, probabilities[rows, targets], 0)
    least = np.finfo(probabilities.dtype).eps
    return float(-np.log(np.clip(of_true, least, 1 - least).astype(np.float64)).mean())


def _hinge_loss(decision: NDArray[Any], targets: NDArray[Any]) -> float | None:
    """Return the mean of max(0, 1 - margin); None without a decision value per class.

    The margin is the decision value of the true class minus the greatest of the others (Crammer and
    Singer, JMLR 2, 2001); for two classes, the decision value, negated for the first class.
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
