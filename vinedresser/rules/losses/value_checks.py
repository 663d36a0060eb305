"""Checks of losses written by hand: wrong formulas, recognised by the value of the loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.losses.mismatch import Given, Mismatch, softmax_over_batch

__all__ = ["wrong_formula"]

# Relative difference between float32 results of different summation orders.
_SAME = 1e-4


def wrong_formula(given: Given) -> Mismatch | None:
    """Return the mismatch of a loss whose value is that of a formula with a mistake.

    Only for losses that are neither known by their name nor have the value of a usual formula.
    """
    if given.identity.loss or not np.isfinite(given.value):
        return None
    return _of_classes(given) or _signed_error(given)


def _of_classes(given: Given) -> Mismatch | None:
    numbers, outputs = given.compared.class_numbers, given.compared.predictions
    if numbers is None or outputs.ndim != 2 or len(outputs) < 2:
        return None
    rows = np.arange(len(outputs))
    if _is_value(given, -_log_softmax(outputs, 0)[rows, numbers].mean()):
        return softmax_over_batch()
    shares = outputs if given.form.shares else np.exp(_log_softmax(outputs, 1))
    if _is_value(given, -shares[rows, numbers].mean()):
        return Mismatch(
            "no_logarithms",
            sure=True,
            statistic="loss",
            value=given.value,
            threshold=0.0,
            seen=f"the loss, {given.value:.4g}, is the negative mean probability of the labels",
            cause="the loss takes probabilities without their logarithm: it has almost no gradient "
            "where the model is wrong",
            remedy="use log_softmax instead of softmax, or cross_entropy on the raw outputs",
        )
    return None


def _signed_error(given: Given) -> Mismatch | None:
    """Return the mismatch of a mean error without a square or an absolute value."""
    labels = np.asarray(given.compared.labels)
    outputs = given.compared.predictions
    if labels.shape != outputs.shape or labels.dtype.kind not in "fiu":
        return None
    differences = outputs - labels
    error = float(differences.mean())
    # A loss of zero is also that of advantages that were normalised, and of much else.
    if abs(error) <= _SAME * float(np.abs(differences).mean()):
        return None
    if not _is_value(given, error) and not _is_value(given, -error):
        return None
    return Mismatch(
        "signed_error",
        sure=True,
        hopeless=True,
        statistic="loss",
        value=given.value,
        threshold=0.0,
        seen=f"the loss, {given.value:.4g}, is the mean difference of outputs and targets",
        cause="errors of both signs cancel out, and outputs far from the targets lower the loss "
        "without bound",
        remedy="square the differences, or take their absolute values, before the mean",
    )


def _is_value(given: Given, value: float) -> bool:
    return abs(value - given.value) <= _SAME * abs(given.value)


def _log_softmax(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    shifted = values - values.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)), np.float64)
