"""Checks of outputs, labels and loss for contradictions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.losses.broadcasting import broadcast
from vinedresser.rules.losses.label_values import advice_for_one_unit, labels_out_of_range
from vinedresser.rules.losses.mismatch import (
    REGRESSION,
    Given,
    Mismatch,
    OutputForm,
    softmax_over_batch,
)
from vinedresser.rules.losses.shares import error_of_shares, shares_of_several
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_formulas import one_hot_rows

# Relative difference between float32 results of different summation orders.
_SAME = 1e-4
# Ranges of bounded activations.
_RANGES = {
    "relu": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softplus": (0.0, math.inf),
}
# Minimum loss of R2 due to an activation, and share of the targets of single rows beyond its range.
_OUT_OF_REACH = 0.1
# Share of entries on the border of a range; a linear layer does not produce such entries.
_PINNED = 0.1
# Distance from the border of a sigmoid's range, and minimum number of entries within it.
_NEAR_BORDER, _NEAR_ENTRIES = 0.05, 2
# Range below which outputs have collapsed to a number, which no activation has to explain.
_COLLAPSED = 1e-3
# Minimum number of classes, and largest share among all rows, to recognise a softmax by a second
# one; and the rounding of float32.
_SEVERAL, _LIVELY_SHARE, _ROUNDED = 4, 0.5, 1e-4
# Minimum number of rows labelled 1.
_FEWEST_ONES = 4
# Share of the outputs that a dropout has made equal.
_DROPPED = 0.05
# Minimum number of rows that look like the result of an activation only because of it.
_FEWEST_ROWS = 32
# Share of the rows of fewer classes that a softmax holds at the border, and width of the border.
_HELD, _BORDER = 0.25, 0.02


def _wrong_formula(given: Given) -> Mismatch | None:
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


def _one_unit_softmax(given: Given) -> Mismatch | None:
    """Return the mismatch of a softmax over one unit."""
    if not given.form.ones or given.activation not in ("", "softmax"):
        return None
    return Mismatch(
        "one_unit_softmax",
        sure=True,
        hopeless=True,
        statistic="std",
        value=0.0,
        threshold=0.0,
        seen="the model predicts 1 for every row, from the first step on",
        cause="a softmax over one unit is always 1 and has no gradient",
        remedy=advice_for_one_unit(given.compared.labels),
    )


def _classes_of_one_unit(given: Given) -> Mismatch | None:
    """Return the mismatch of a cross-entropy between classes that gets a single output.

    The share of one class among one is 1, whatever the output: the loss is exactly 0.
    """
    if given.identity.loss != "cross_entropy" or given.form.width != 1 or given.value != 0:
        return None
    labels = np.asarray(given.compared.labels)
    if labels.size < 2 or (labels == labels.flat[0]).all():
        return None
    return Mismatch(
        "classes_of_one_unit",
        sure=True,
        hopeless=True,
        statistic="loss",
        value=given.value,
        threshold=0.0,
        seen="a cross-entropy between classes receives a single output for each row, and is 0",
        cause="with one class, its share is always 1: the loss is 0 for all outputs, and without "
        "a gradient",
        remedy=advice_for_one_unit(labels),
    )


def _double_activation(given: Given) -> Mismatch | None:
    """Return the mismatch of a bounded activation before a loss that takes logits."""
    form, identity = given.form, given.identity
    if identity.takes != "logits":
        return None
    if form.shares and (form.zeros < 1 - 1 / form.width - 0.01 or given.activation == "softmax"):
        floor = math.log1p((form.width - 1) / math.e)
        return _on_logits("double_softmax", "softmax", floor, sure=True, form=form)
    bounded = _RANGES.get(given.activation)
    if bounded and math.isfinite(bounded[1]) and _inside(form, bounded):
        spread = bounded[1] - bounded[0]
        floor = math.log1p((max(form.width, 2) - 1) * math.exp(-spread))
        return _on_logits(given.activation, given.activation, floor, sure=True, form=form)
    if form.between and form.lively and form.zeros < _PINNED:
        sure = identity.loss == "binary_cross_entropy" and _fill_the_range(given.compared)
        name = "sigmoid" if sure else "what looks like sigmoid"
        found = _on_logits("sigmoid", name, math.log1p(math.exp(-1)), sure=sure, form=form)
        return found._replace(least_rows=_FEWEST_ROWS)
    if form.lowest >= 0 and form.zeros >= _PINNED and form.highest > 0:
        return _on_logits("relu", "relu", 0.0, sure=given.activation == "relu", form=form)
    return None


def _fill_the_range(compared: Compared) -> bool:
    """Return whether outputs of both labels come close to 0 and to 1, and never beyond.

    A loss that takes logits drives them on; only a sigmoid holds them there.
    """
    outputs, labels = compared.predictions, np.asarray(compared.labels)
    near = (outputs < _NEAR_BORDER).sum(), (outputs > 1 - _NEAR_BORDER).sum()
    return min(near) >= _NEAR_ENTRIES and bool((labels > 0).any() and (labels <= 0).any())


def _on_logits(
    kind: str, activation: str, floor: float, *, sure: bool, form: OutputForm
) -> Mismatch:
    limit = f", so that the loss cannot fall below {floor:.3g}" if floor and sure else ""
    return Mismatch(
        kind,
        sure=sure,
        statistic="max",
        value=form.highest,
        threshold=1.0,
        seen=f"a loss that takes logits receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}{', with rows that sum to 1' if form.shares else ''}",
        cause=f"the model ends in {activation}, but the loss applies its own activation{limit}",
        remedy="remove the last activation: the loss needs the raw outputs of the last layer",
    )


def _no_probabilities(given: Given) -> Mismatch | None:
    """Return the mismatch of unsuitable outputs for a loss that takes probabilities."""
    form, identity = given.form, given.identity
    if identity.takes != "probabilities":
        return None
    binary = identity.loss == "binary_cross_entropy"
    wanted = "sigmoid" if binary or form.width == 1 else "softmax"
    outside = form.lowest < -1e-6 or (binary and not form.between)
    # A zero tells that the loss is given the result of this relu, not that of another layer.
    relu = given.activation == "relu" and form.zeros > 0 and not form.shares
    if not (outside or relu) and (binary or form.shares or form.width == 1):
        return None
    if given.activation == "sigmoid" and form.between and identity.by_name:
        return _sigmoid_of_classes(form)
    if not (outside or relu or form.lively):
        return None
    ends = f"ends in relu instead of {wanted}" if relu else f"does not end in {wanted}"
    return Mismatch(
        "no_probabilities",
        sure=outside or relu,
        statistic="min" if form.lowest < 0 else "max",
        value=form.lowest if form.lowest < 0 else form.highest,
        threshold=0.0 if form.lowest < 0 else 1.0,
        seen=f"a loss that takes probabilities receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}{'' if outside else ', with rows that do not sum to 1'}",
        cause=f"the model {ends}: the loss clips values that are no probabilities, which removes "
        "their gradient",
        remedy=f"use {wanted} {'instead of relu' if relu else 'at the end of the model'}, or "
        f"{'no activation and ' if relu else ''}a loss that takes logits "
        "(from_logits=True; in PyTorch "
        f"{'BCEWithLogitsLoss' if wanted == 'sigmoid' else 'CrossEntropyLoss'})",
    )


def _sigmoid_of_classes(form: OutputForm) -> Mismatch:
    """Return the mismatch of a sigmoid before a cross-entropy between classes.

    Keras computes the loss of a softmax of its inputs (TensorFlow) or of its outputs divided by
    their sum, so that the classes may be right all the same.
    """
    return Mismatch(
        "sigmoid_of_classes",
        sure=False,
        statistic="max",
        value=form.highest,
        threshold=1.0,
        seen=f"a cross-entropy between classes receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}, with rows that do not sum to 1",
        cause="the model ends in sigmoid instead of softmax: each class has a probability of its "
        "own, although a row has one class, so the loss is that of other probabilities than the "
        "model predicts",
        remedy="use softmax instead of sigmoid; for rows of several classes, a binary "
        "cross-entropy",
        hint=True,
    )


def _no_logarithms(given: Given) -> Mismatch | None:
    """Return the mismatch of unsuitable outputs for a loss that takes log-probabilities."""
    form = given.form
    if given.identity.takes != "logarithms" or form.logarithms or form.width < 2:
        return None
    if given.activation == "log_softmax":
        return _over_another_axis(form)
    return Mismatch(
        "no_logarithms",
        sure=True,
        statistic="max",
        value=form.highest,
        threshold=0.0,
        seen=f"a loss that takes log-probabilities receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}",
        cause="the outputs are probabilities without their logarithm: the loss has almost no "
        "gradient"
        if form.shares
        else "there is no log_softmax at the end of the model: the loss decreases without bound",
        remedy="add log_softmax at the end of the model, or use CrossEntropyLoss on the raw "
        "outputs of the last layer",
    )


def _over_another_axis(form: OutputForm) -> Mismatch:
    """Return the mismatch of a log_softmax over another axis than that of the classes."""
    return Mismatch(
        "softmax_over_another_axis",
        sure=True,
        statistic="max",
        value=form.highest,
        threshold=0.0,
        seen="a loss that takes log-probabilities receives the result of log_softmax, but the "
        f"probabilities of the {form.width} classes of a row do not sum to 1",
        cause="log_softmax is taken over another axis than that of the classes, such as time, so "
        "that the places of a row compete with each other",
        remedy="use log_softmax over the axis of the classes, or CrossEntropyLoss on the raw "
        "outputs of the last layer",
    )


def _logarithms_of_shares(given: Given) -> Mismatch | None:
    """Return the mismatch of a log_softmax whose inputs are probabilities, by its outputs.

    They are the inputs less a constant per row, which follows from the sum of a row's inputs, 1.
    """
    if given.identity.loss != "cross_entropy" or not given.form.logarithms:
        return None
    logarithms = given.compared.predictions
    shares = logarithms + (1 - logarithms.sum(-1, keepdims=True)) / given.form.width
    # Few classes, or rows of almost equal numbers, look like that by chance; but a loss that takes
    # logits would drive them beyond the border.
    held = given.form.width >= _SEVERAL or (shares.max(-1) > 1 - _BORDER).mean() >= _HELD
    if not held or shares.max() < _LIVELY_SHARE or shares.min() < -_ROUNDED:
        return None
    floor = math.log1p((given.form.width - 1) / math.e)
    form = given.form._replace(lowest=float(shares.min()), highest=float(shares.max()), shares=True)
    found = _on_logits("double_softmax", "softmax", floor, sure=True, form=form)
    return found._replace(least_rows=_FEWEST_ROWS)


def _over_batch(given: Given) -> Mismatch | None:
    """Return the mismatch of probabilities that sum to 1 over the rows of the batch."""
    logarithms = given.identity.takes == "logarithms" and not given.form.logarithms
    over_rows = given.over_batch if logarithms else given.shares_over_batch
    return softmax_over_batch() if over_rows else None


def _targets_out_of_reach(given: Given) -> Mismatch | None:
    """Return the mismatch of a bounded last activation for targets beyond its range."""
    if given.identity.loss not in REGRESSION:
        return None
    labels = np.asarray(given.targets, np.float64)
    limits, known = _limits(given)
    if limits is None or labels.size < 2 or not np.isfinite(labels).all():
        return None
    if len(given.compared.labels) == 1:
        # One outlier among the first rows, by which all single rows are judged, is no sign.
        beyond = float((labels != labels.clip(*limits)).mean())
        if len(labels) < _FEWEST_ROWS or beyond < _OUT_OF_REACH:
            return None
    spread = float(((labels - labels.mean(0)) ** 2).sum())
    if not spread:
        return None
    lost = float(((labels - labels.clip(*limits)) ** 2).sum()) / spread
    if lost < _OUT_OF_REACH:
        return None
    name = given.activation if known else f"an activation with values in {limits}"
    return Mismatch(
        "out_of_reach",
        sure=known,
        hopeless=lost > 1,
        statistic="max",
        value=given.form.highest,
        threshold=float(labels.max()),
        seen=f"predictions lie between {given.form.lowest:.3g} and {given.form.highest:.3g}, but "
        f"targets between {labels.min():.4g} and {labels.max():.4g}",
        cause=f"the model ends in {name}: R2 cannot exceed {1 - lost:.2g}",
        remedy="use a last layer without an activation, or scale the targets to its range",
    )


def _limits(given: Given) -> tuple[tuple[float, float] | None, bool]:
    """Return the range of the last activation, and whether the model itself confirms it."""
    form = given.form
    limits = _RANGES.get(given.activation)
    if limits and _inside(form, limits):
        return limits, True
    predictions = given.compared.predictions
    if form.lowest >= 0 and form.zeros >= _PINNED and form.highest > _COLLAPSED:
        return (0.0, math.inf), False
    for low, high in ((0.0, 1.0), (-1.0, 1.0)) if form.highest - form.lowest > _COLLAPSED else ():
        border = np.minimum(abs(predictions - low), abs(predictions - high)) < 1e-3
        if form.lowest >= low and form.highest <= high and border.mean() >= _PINNED:
            return (low, high), False
    return None, False


def _inside(form: OutputForm, limits: tuple[float, float]) -> bool:
    return limits[0] - 1e-6 <= form.lowest and form.highest <= limits[1] + 1e-6


def _relu_of_classes(given: Given) -> Mismatch | None:
    """Return the mismatch of a relu that is to predict the labels 0 and 1 by an error."""
    outputs, labels = given.compared.predictions, np.asarray(given.compared.labels, np.float64)
    if given.identity.loss not in REGRESSION or given.activation != "relu":
        return None
    if outputs.size != labels.size or given.form.lowest < 0 or set(np.unique(labels)) != {0, 1}:
        return None
    if given.form.width > 1 and not one_hot_rows(labels):
        return None
    of_ones = outputs.ravel()[labels.ravel() == 1]
    share = float((of_ones == 0).mean())
    if of_ones.size < _FEWEST_ONES or share < _PINNED:
        return None
    several = given.form.width > 1
    return Mismatch(
        "relu_of_classes",
        sure=True,
        statistic="zeros",
        value=share,
        threshold=_PINNED,
        seen=f"labels are 0 and 1, and the output is exactly 0 for {share:.0%} of those that are 1",
        cause="the model ends in relu, which has no gradient at 0, so that nothing is learned from "
        "these labels",
        remedy="use softmax and a categorical cross-entropy"
        if several
        else "use sigmoid and a binary cross-entropy for the single output",
    )


def _dropped_outputs(given: Given) -> Mismatch | None:
    """Return the mismatch of a dropout behind the last weights, if outputs are equal by it.

    A dropped score is 0, a sigmoid of it 1/2, and the softmax of several in a row is the same.
    """
    if not given.dropout:
        return None
    rows = given.compared.predictions.reshape(-1, given.form.width)
    most = np.unique(rows, return_counts=True)[1].max() / rows.size
    in_rows = 1 - np.mean([np.unique(row).size for row in rows]) / given.form.width
    share = float(max(most, in_rows))
    if share < _DROPPED:
        return None
    return Mismatch(
        "dropped_outputs",
        sure=True,
        statistic="equal",
        value=share,
        threshold=_DROPPED,
        seen=f"{share:.0%} of the outputs of a batch are equal, since the dropout {given.dropout} "
        "comes after the last weights",
        cause="dropout on the outputs replaces predictions by 0 at random, which no training can "
        "make right",
        remedy=f"move the dropout {given.dropout} before the last layer, or remove it",
    )


def _negated(given: Given) -> Mismatch | None:
    """Return the mismatch of a loss function whose negative is minimised."""
    if not given.negated:
        return None
    return Mismatch(
        "negated",
        sure=True,
        statistic="loss",
        value=given.value,
        threshold=0.0,
        seen="the loss decreases where its loss function increases",
        cause="the optimizer maximises the loss function (gradient ascent): the function is "
        "subtracted, or the optimizer has maximize=True",
        remedy="remove the minus sign before the loss function, or maximize=True",
    )


# Checks in order of precedence; the first mismatch is reported.
CHECKS: tuple[Callable[[Given], Mismatch | None], ...] = (
    _negated,
    _one_unit_softmax,
    _classes_of_one_unit,
    broadcast,
    labels_out_of_range,
    _over_batch,
    _dropped_outputs,
    _logarithms_of_shares,
    _no_logarithms,
    _double_activation,
    _no_probabilities,
    shares_of_several,
    _targets_out_of_reach,
    _relu_of_classes,
    error_of_shares,
    _wrong_formula,
)
