"""Checks of labels: values that a loss does not take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vinedresser.rules.losses.mismatch import Given, Mismatch
from vinedresser.rules.signals.losses.loss_formulas import one_hot_rows

__all__ = ["LabelSigns", "advice_for_one_unit", "labels_out_of_range"]

# Maximum share of rows without a class.
_UNLABELLED = 0.02
# How far soft binary labels reach beyond 0 and 1, such as those of real images in 0.7 to 1.2.
_SOFT = 0.5
# Greatest of two labels, the other being 0, that is no label any more, but was divided.
_DIVIDED = 0.1
# Share of rows whose labels are no shares, and how far those of shares are from a sum of 1.
_NO_SHARES, _ROUNDED = 0.5, 0.01
# Maximum number of distinct labels of classes, and share of the rows of a batch that they may be.
_MOST_CLASSES, _DISTINCT = 100, 0.5

# Minimum number of labels, and of each value.
_LABELS, _OF_EACH = 64, 8
# What torch's losses of labels -1 and 1 make of a label 0, by the names of classes and functions.
_NOTHING = "is left out, so that nothing separates what does not belong together"
_CONSTANT = "adds a constant, so that nothing is learned from it"
_BOTH = "is taken for both -1 and 1"
_OF_ZERO = {
    "CosineEmbeddingLoss": _NOTHING,
    "cosine_embedding_loss": _NOTHING,
    "HingeEmbeddingLoss": _BOTH,
    "hinge_embedding_loss": _BOTH,
    "MarginRankingLoss": _CONSTANT,
    "margin_ranking_loss": _CONSTANT,
    "SoftMarginLoss": _CONSTANT,
    "soft_margin_loss": _CONSTANT,
}

# Losses of counts, by the names of classes and functions of PyTorch and Keras.
_OF_COUNTS = ("PoissonNLLLoss", "poisson_nll_loss", "Poisson", "poisson")

# Losses that divide by the labels, of Keras.
_OF_RATIOS = ("MeanAbsolutePercentageError", "mean_absolute_percentage_error")

_QUANTITIES = "a last layer without an activation and MSELoss (mean_squared_error)"
_WHOLE = "do not scale the labels: use whole class numbers from 0"


class LabelSigns:
    """Recognises labels of signs that a loss does not take, in bounded memory.

    Labels 0 and 1 where PyTorch's losses take -1 and 1: their formulas have a case for 1 and one
    for -1; a label of 0 has no gradient, or that of both. Labels of -1 beside 0 and 1 show that
    zeros are left out on purpose, such as ties in a ranking. And negative labels where a loss takes
    counts, and labels of 0 where it divides by them.

    Source: the documentation of these losses (torch.nn).
    """

    def __init__(self) -> None:
        # Numbers of zeros and ones of each loss; None once there were other labels.
        self._counts: dict[str, tuple[int, int] | None] = {}

    def detect(self, loss: str, kind: str, labels: NDArray[Any]) -> Mismatch | None:
        """Return the mismatch once enough labels were seen.

        Args:
            loss: name of the loss.
            kind: class or function of a framework that is the loss; "" if it is none or unknown.
            labels: labels of a batch, [rows, …].
        """
        if kind in _OF_COUNTS and labels.size and labels.min() < 0:
            return _negative_counts(kind, labels)
        if kind in _OF_RATIOS and (labels == 0).any():
            return _divided_by_zero(kind, labels)
        before = self._counts.get(loss, (0, 0))
        if kind not in _OF_ZERO or before is None:
            return None
        zeros, ones = int((labels == 0).sum()), int((labels == 1).sum())
        if zeros + ones < labels.size:
            self._counts[loss] = None
            return None
        zeros, ones = self._counts[loss] = (before[0] + zeros, before[1] + ones)
        if zeros + ones < _LABELS or min(zeros, ones) < _OF_EACH:
            return None
        return Mismatch(
            "labels_without_sign",
            sure=True,
            statistic="min",
            value=0.0,
            threshold=-1.0,
            seen=f"{kind} receives labels 0 and 1 ({zeros} of {zeros + ones} are 0)",
            cause=f"the loss takes labels -1 and 1: a label of 0 {_OF_ZERO[kind]}",
            remedy="use 2 * labels - 1",
            of="labels",
        )


def _negative_counts(kind: str, labels: NDArray[Any]) -> Mismatch:
    """Return the mismatch of negative labels of a Poisson distribution."""
    negative = int((labels < 0).sum())
    return Mismatch(
        "negative_counts",
        sure=True,
        statistic="min",
        value=float(labels.min()),
        threshold=0.0,
        seen=f"{kind} receives labels from {labels.min():.4g} to {labels.max():.4g} "
        f"({negative} of {labels.size} in this batch are negative)",
        cause="the loss is that of counts, which are 0 or more: below 0 it has no minimum, or only "
        "where the prediction is 0",
        remedy=f"for quantities of both signs, use {_QUANTITIES}; if they are counts, do not "
        "standardise them",
        of="labels",
    )


def _divided_by_zero(kind: str, labels: NDArray[Any]) -> Mismatch:
    """Return the mismatch of labels of 0 for an error in percent."""
    zeros = int((labels == 0).sum())
    return Mismatch(
        "divided_by_zero",
        sure=True,
        statistic="zeros",
        value=float(zeros),
        threshold=0.0,
        seen=f"{kind} receives labels of 0 ({zeros} of {labels.size} in this batch)",
        cause="the loss divides each error by its label, and by 1e-7 where that is 0: hardly any "
        "other label counts",
        remedy="use softmax and a categorical cross-entropy"
        if one_hot_rows(labels)
        else advice_for_one_unit(labels),
        of="labels",
    )


def labels_out_of_range(given: Given) -> Mismatch | None:
    """Return the mismatch of labels that the loss or the output width does not allow."""
    labels = np.asarray(given.compared.labels, np.float64)
    if not labels.size or not np.isfinite(labels).all():
        return None
    if given.identity.loss == "binary_cross_entropy":
        return _not_binary(labels)
    width = given.form.width
    if given.identity.loss != "cross_entropy" or width < 2:
        return None
    if labels.ndim < given.compared.predictions.ndim or labels.shape[-1] == 1:
        return _no_class_numbers(labels, width)
    return None if one_hot_rows(labels) else _no_class_weights(labels, width)


def advice_for_one_unit(labels: ArrayLike) -> str:
    """Return how to predict labels with a single output instead of a share among one class.

    Args:
        labels: labels of a batch, [rows, ...], any number.
    """
    values = np.asarray(labels, np.float64)
    found = set(np.unique(values))
    if found <= {0.0, 1.0}:
        return "use sigmoid and a binary cross-entropy for the single output"
    if found <= {-1.0, 1.0}:
        return "use (labels + 1) / 2 as labels, with sigmoid and a binary cross-entropy"
    if not _like_classes(values):
        return f"the targets are quantities: use {_QUANTITIES}"
    return (
        f"if the labels are classes, use one output for each (at least {values.max() + 1:g}) with "
        f"softmax and a categorical cross-entropy; if they are quantities, {_QUANTITIES}"
    )


def _like_classes(labels: NDArray[np.float64]) -> bool:
    """Return whether labels can be class numbers: small whole numbers that occur repeatedly."""
    whole = bool((labels == np.rint(labels)).all())
    distinct = np.unique(labels).size
    few = distinct <= max(_DISTINCT * labels.size, 2)
    return whole and few and bool(labels.min() >= 0 and labels.max() < _MOST_CLASSES)


def _no_class_numbers(labels: NDArray[np.float64], width: int) -> Mismatch | None:
    """Return the mismatch of labels that are not whole numbers below the number of outputs."""
    lowest, highest = float(labels.min()), float(labels.max())
    if not (labels == np.rint(labels)).all():
        return Mismatch(
            "no_class_numbers",
            sure=True,
            hopeless=True,
            statistic="max",
            value=highest,
            threshold=float(width),
            seen=f"a cross-entropy between {width} classes receives labels from {lowest:.3g} to "
            f"{highest:.3g} that are not whole numbers",
            cause="the labels are not class numbers (scaled like the inputs?): the loss cuts off "
            "their decimals, so it trains other classes than theirs, and a low loss is no success",
            remedy=f"{_WHOLE}; of targets that are quantities, use {_QUANTITIES}",
            of="labels",
        )
    beyond = labels[labels >= width]
    # Such as 255 for pixels whose class is unknown.
    ignored = beyond.size and beyond.min() == beyond.max() > width
    if highest >= width and not ignored:
        return _too_narrow(width, f"labels go up to {highest:g}", highest)
    return None


def _no_class_weights(labels: NDArray[np.float64], width: int) -> Mismatch | None:
    """Return the mismatch of labels [..., classes] that are not shares of the classes."""
    values = set(np.unique(labels))
    empty = float((labels.sum(-1) == 0).mean())
    if values <= {0.0, 1.0}:
        many = f"{empty:.0%} of the rows have no class"
        return _too_narrow(width, many, empty) if empty > _UNLABELLED else None
    highest = float(labels.max())
    if len(values) != 2 or min(values) != 0 or ((labels > 0).sum(-1) != 1).any():
        return _no_shares(labels)
    return Mismatch(
        "scaled_labels",
        sure=True,
        statistic="max",
        value=highest,
        threshold=1.0,
        seen=f"the one label of each row of a cross-entropy is {highest:.3g} instead of 1",
        cause="the labels were scaled, as the inputs are: the loss and its gradient have the same "
        f"factor, {highest:.3g}",
        remedy="do not scale the labels: use 1 for the class of a row, and 0 for the others",
        of="labels",
    )


def _no_shares(labels: NDArray[np.float64]) -> Mismatch | None:
    """Return the mismatch of numbers of several classes that sum to another total in each row.

    Labels of one class, or of several equal ones, may carry the weight of their row.
    """
    rows = labels.reshape(-1, labels.shape[-1])
    sums = rows.sum(-1)
    least = np.where(rows != 0, rows, np.inf).min(-1)
    different = (rows.max(-1) > least) & (abs(sums - 1) > _ROUNDED)
    if not different.mean() > _NO_SHARES:
        return None
    return Mismatch(
        "no_shares",
        # Shares may carry the weight of their row, too.
        sure=False,
        statistic="sum",
        value=float(sums.max()),
        threshold=1.0,
        seen=f"the labels of a categorical cross-entropy are numbers of several classes, which sum "
        f"to {sums.min():.3g} to {sums.max():.3g} in a row instead of 1",
        cause="the labels are no shares of the classes; TensorFlow computes the gradient of the "
        "loss as if they were, so that the loss can rise without end",
        remedy="use shares that sum to 1 in each row; of targets that are quantities, "
        f"{_QUANTITIES}"
        "; of several labels that do not exclude each other, sigmoid and a binary cross-entropy",
        of="labels",
    )


def _too_narrow(width: int, seen: str, value: float) -> Mismatch:
    return Mismatch(
        "too_narrow",
        sure=True,
        statistic="max",
        value=value,
        threshold=float(width),
        seen=f"the model has {width} outputs, but {seen}",
        cause="there are more classes than outputs, or class numbers start at 1",
        remedy="use as many outputs as classes, and number the classes from 0",
    )


def _not_binary(labels: NDArray[np.float64]) -> Mismatch | None:
    lowest, highest = float(labels.min()), float(labels.max())
    values = np.unique(labels)
    # Of two labels that were divided by 255, say.
    divided = values.size == 2 and lowest == 0 and highest <= _DIVIDED
    if lowest >= 0 and highest <= 1 and not divided:
        return None
    whole = bool((labels == np.rint(labels)).all())
    classes = lowest >= 0 and _like_classes(labels)
    if divided:
        cause = "the labels were scaled, as the inputs are: the model learns to predict almost 0"
        remedy = "do not scale the labels: use 0 and 1"
    elif classes:
        # A rare class may be in none of the batches so far.
        cause = f"one unit separates two classes, but there are at least {highest + 1:g}"
        remedy = "use one unit for each class, softmax and a categorical cross-entropy"
    elif set(values) == {-1.0, 1.0}:
        cause = "labels are -1 and 1, but the loss takes 0 and 1: it decreases without bound"
        remedy = "use (labels + 1) / 2, or a hinge loss"
    else:
        cause = "the targets are numbers, not classes, but the loss is a cross-entropy"
        remedy = f"use {_QUANTITIES}"
    # Labels of adversarial models may be soft beyond 0 and 1.
    soft = not whole and lowest >= -_SOFT and highest <= 1 + _SOFT and not divided
    return Mismatch(
        "labels_not_binary",
        sure=not soft,
        hopeless=whole and lowest >= 0,
        statistic="max" if highest > 1 else "min",
        value=highest if highest > 1 else lowest,
        threshold=1.0 if highest > 1 else 0.0,
        seen=f"a binary cross-entropy receives labels from {lowest:.3g} to {highest:.3g}",
        cause=cause,
        remedy=remedy,
    )
