"""Checks for labels that contradict the loss, or the number or shape of the outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.losses.mismatch import REGRESSION, Given, Mismatch
from vinedresser.rules.signals.losses.loss_formulas import one_hot_rows

__all__ = ["broadcast", "labels_out_of_range"]

# Maximum share of rows without a class.
_UNLABELLED = 0.02


def broadcast(given: Given) -> Mismatch | None:
    """Return the mismatch of shapes that the loss broadcasts against each other."""
    labels, predictions = given.compared.labels, given.compared.predictions
    shapes = {labels.ndim, predictions.ndim}
    column = labels if labels.ndim == 2 else predictions
    if shapes != {1, 2} or column.shape[1] != 1 or len(labels) < 2:
        return None
    if not (given.broadcasts or _value_of_all_pairs(given)):
        return None
    rows = len(labels)
    return Mismatch(
        "broadcast",
        sure=True,
        hopeless=False,
        statistic="ndim",
        value=float(predictions.ndim),
        threshold=float(labels.ndim),
        seen=f"predictions are [N{', 1' * (predictions.ndim - 1)}] and labels "
        f"[N{', 1' * (labels.ndim - 1)}], so the loss compares each prediction with each label "
        f"({rows} x {rows} pairs for {rows} rows)",
        cause="shapes [N, 1] and [N] broadcast to [N, N]: the model can only learn the mean of "
        "the labels",
        remedy="use labels[:, None] or predictions.squeeze(1)",
    )


def _value_of_all_pairs(given: Given) -> bool:
    """Return whether the loss value is that of all pairs instead of the rows."""
    labels = np.asarray(given.compared.labels, np.float64).reshape(1, -1)
    errors = given.compared.predictions.reshape(-1, 1) - labels
    if given.identity.loss not in ("", *REGRESSION):
        return False
    close = 1e-4 * abs(given.value)
    return any(
        abs(pairs.mean() - given.value) < close < abs(np.diag(pairs).mean() - given.value) / 10
        for pairs in (errors**2, abs(errors))
    )


def labels_out_of_range(given: Given) -> Mismatch | None:
    """Return the mismatch of labels that the loss or the output width does not allow."""
    labels = np.asarray(given.compared.labels, np.float64)
    if not labels.size or not np.isfinite(labels).all():
        return None
    lowest, highest = float(labels.min()), float(labels.max())
    if given.identity.loss == "binary_cross_entropy":
        return _not_binary(labels, lowest, highest)
    if given.identity.loss != "cross_entropy":
        return None
    width = given.form.width
    numbers = labels.ndim < given.compared.predictions.ndim or labels.shape[-1] == 1
    if numbers and width > 1 and highest >= width:
        return _too_narrow(width, f"labels go up to {highest:g}", highest)
    if not numbers and labels.ndim > 1 and width > 1 and not one_hot_rows(labels):
        empty = float((labels.sum(-1) == 0).mean())
        if set(np.unique(labels)) <= {0.0, 1.0} and empty > _UNLABELLED:
            return _too_narrow(width, f"{empty:.0%} of the rows have no class", empty)
    return None


def _too_narrow(width: int, seen: str, value: float) -> Mismatch:
    return Mismatch(
        "too_narrow",
        sure=True,
        hopeless=False,
        statistic="max",
        value=value,
        threshold=float(width),
        seen=f"the model has {width} outputs, but {seen}",
        cause="there are more classes than outputs, or class numbers start at 1",
        remedy="use as many outputs as classes, and number the classes from 0",
    )


def _not_binary(labels: NDArray[Any], lowest: float, highest: float) -> Mismatch | None:
    if lowest >= 0 and highest <= 1:
        return None
    whole = bool((labels == np.rint(labels)).all())
    if whole and lowest >= 0:
        cause = f"one unit separates two classes, but there are {highest + 1:g}"
        remedy = f"use {highest + 1:g} units with softmax and a categorical cross-entropy"
    elif whole and {lowest, highest} == {-1.0, 1.0}:
        cause = "labels are -1 and 1, but the loss takes 0 and 1: it decreases without bound"
        remedy = "use (labels + 1) / 2, or a hinge loss"
    else:
        cause = "the targets are numbers, not classes, but the loss is a cross-entropy"
        remedy = "use MSELoss (mean_squared_error) and a last layer without an activation"
    return Mismatch(
        "labels_not_binary",
        sure=True,
        hopeless=whole and lowest >= 0,
        statistic="max" if highest > 1 else "min",
        value=highest if highest > 1 else lowest,
        threshold=1.0 if highest > 1 else 0.0,
        seen=f"a binary cross-entropy receives labels from {lowest:.3g} to {highest:.3g}",
        cause=cause,
        remedy=remedy,
    )
