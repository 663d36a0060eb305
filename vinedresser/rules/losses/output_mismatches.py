"""How the outputs of a model, the labels and the loss can contradict each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.losses.output_form import OutputForm
from vinedresser.rules.signals.compared import Compared
from vinedresser.rules.signals.loss_formulas import one_hot_rows
from vinedresser.rules.signals.loss_identity import LossIdentity

__all__ = ["CHECKS", "Given", "Mismatch"]

_REGRESSION = ("mean_squared_error", "mean_absolute_error", "huber")
# Of bounded activations, the range of their values.
_RANGES = {
    "relu": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softplus": (0.0, math.inf),
}
# R2 that is lost to an activation before it is worth a word.
_OUT_OF_REACH = 0.1
# Share of entries that lie on the border of a range, which a linear layer does not do.
_PINNED = 0.1
# Share of rows without a class.
_UNLABELLED = 0.02


class Given(NamedTuple):
    """What a check is given.

    Attributes:
        identity: of the loss.
        compared: what it compared.
        form: of the predictions.
        activation: the last of the model, "" where it is none or not known.
        broadcasts: the loss is one that broadcasts its arguments against each other.
        value: of the loss.
    """

    identity: LossIdentity
    compared: Compared
    form: OutputForm
    activation: str
    broadcasts: bool
    value: float


class Mismatch(NamedTuple):
    """What does not fit.

    Attributes:
        kind: a word for it.
        sure: it is wrong whatever becomes of the training; else it counts when that is poor.
        hopeless: nothing can be learned.
        statistic: which figure shows it.
        value: that figure.
        threshold: what it was held against.
        seen: what was seen.
        cause: what is wrong.
        remedy: what to change.
    """

    kind: str
    sure: bool
    hopeless: bool
    statistic: str
    value: float
    threshold: float
    seen: str
    cause: str
    remedy: str


def _one_unit_softmax(given: Given) -> Mismatch | None:
    if not given.form.ones or given.activation not in ("", "softmax"):
        return None
    return Mismatch(
        "one_unit_softmax",
        sure=True,
        hopeless=True,
        statistic="std",
        value=0.0,
        threshold=0.0,
        seen="the model says 1 for every row, from the first step on",
        cause="a softmax over one unit is always 1 and has no gradient",
        remedy="sigmoid instead of softmax on the one unit, or two units with a softmax and a "
        "categorical cross-entropy",
    )


def _broadcast(given: Given) -> Mismatch | None:
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
        f"[N{', 1' * (labels.ndim - 1)}], so the loss compares each with each ({rows} x {rows} "
        f"pairs of {rows} rows)",
        cause="shapes [N, 1] and [N] broadcast to [N, N]: the best that it can "
        "learn is the mean of the labels",
        remedy="labels[:, None], or predictions.squeeze(1)",
    )


def _value_of_all_pairs(given: Given) -> bool:
    """Say whether the loss is that of all pairs, and not that of the rows."""
    labels = np.asarray(given.compared.labels, np.float64).reshape(1, -1)
    errors = given.compared.predictions.reshape(-1, 1) - labels
    if given.identity.loss not in ("", *_REGRESSION):
        return False
    close = 1e-4 * abs(given.value)
    return any(
        abs(pairs.mean() - given.value) < close < abs(np.diag(pairs).mean() - given.value) / 10
        for pairs in (errors**2, abs(errors))
    )


def _twice(given: Given) -> Mismatch | None:
    """A softmax, or a bounded activation, before a loss that takes logits."""
    form, identity = given.form, given.identity
    if identity.takes != "logits":
        return None
    if form.shares and (form.zeros < 1 - 1 / form.width - 0.01 or given.activation == "softmax"):
        floor = math.log1p((form.width - 1) / math.e)
        return _on_logits("double_softmax", "a softmax", floor, sure=True, form=form)
    bounded = _RANGES.get(given.activation)
    if bounded and math.isfinite(bounded[1]) and _inside(form, bounded):
        spread = bounded[1] - bounded[0]
        floor = math.log1p((max(form.width, 2) - 1) * math.exp(-spread))
        return _on_logits(given.activation, f"a {given.activation}", floor, sure=True, form=form)
    if form.between and form.lively and form.zeros < _PINNED:
        return _on_logits(
            "sigmoid", "a sigmoid, as it seems,", math.log(2) / 2, sure=False, form=form
        )
    if form.lowest >= 0 and form.zeros >= _PINNED:
        return _on_logits("relu", "a relu", 0.0, sure=False, form=form)
    return None


def _on_logits(kind: str, what: str, floor: float, *, sure: bool, form: OutputForm) -> Mismatch:
    limit = f", so that the loss cannot fall below {floor:.3g}" if floor and sure else ""
    return Mismatch(
        kind,
        sure=sure,
        hopeless=False,
        statistic="max",
        value=form.highest,
        threshold=1.0,
        seen=f"a loss that takes logits is given numbers from {form.lowest:.3g} to "
        f"{form.highest:.3g}{', whose rows sum to 1' if form.shares else ''}",
        cause=f"{what} before a loss that puts its own on the outputs{limit}",
        remedy="leave the last activation out: the loss is to have what the last layer gives",
    )


def _no_probabilities(given: Given) -> Mismatch | None:
    """Raw outputs, or those of another activation, for a loss that takes probabilities."""
    form, identity = given.form, given.identity
    if identity.takes != "probabilities":
        return None
    binary = identity.loss == "binary_cross_entropy"
    wanted = "sigmoid" if binary or form.width == 1 else "softmax"
    outside = form.lowest < -1e-6 or (binary and not form.between)
    if not outside and (binary or form.shares or form.width == 1 or not form.lively):
        return None
    return Mismatch(
        "no_probabilities",
        sure=outside,
        hopeless=False,
        statistic="min" if form.lowest < 0 else "max",
        value=form.lowest if form.lowest < 0 else form.highest,
        threshold=0.0 if form.lowest < 0 else 1.0,
        seen=f"a loss that takes probabilities is given numbers from {form.lowest:.3g} to "
        f"{form.highest:.3g}{'' if outside else ', whose rows do not sum to 1'}",
        cause=f"there is no {wanted} at the end of the model, and the loss cuts off what is no "
        "probability, with its gradient",
        remedy=f"a {wanted} at the end of the model, or the loss that takes logits "
        "(from_logits=True; in torch "
        f"{'BCEWithLogitsLoss' if wanted == 'sigmoid' else 'CrossEntropyLoss'})",
    )


def _no_logarithms(given: Given) -> Mismatch | None:
    form = given.form
    if given.identity.takes != "logarithms" or form.logarithms or form.width < 2:
        return None
    return Mismatch(
        "no_logarithms",
        sure=True,
        hopeless=False,
        statistic="max",
        value=form.highest,
        threshold=0.0,
        seen="a loss that takes logarithms of probabilities is given numbers from "
        f"{form.lowest:.3g} to {form.highest:.3g}",
        cause="probabilities without their logarithm: the loss has hardly any gradient"
        if form.shares
        else "no log_softmax at the end of the model: the loss falls without end",
        remedy="log_softmax at the end of the model, or CrossEntropyLoss on what the last layer "
        "gives",
    )


def _labels_out_of_range(given: Given) -> Mismatch | None:
    """Labels that are none of what the loss or the width of the output allow."""
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
        return _too_narrow(width, f"labels reach {highest:g}", highest)
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
        seen=f"the model has {width} outputs, and {seen}",
        cause="there are more classes than outputs, or the classes are numbered from 1",
        remedy="as many outputs as classes, numbered from 0",
    )


def _not_binary(labels: NDArray[Any], lowest: float, highest: float) -> Mismatch | None:
    if lowest >= 0 and highest <= 1:
        return None
    whole = bool((labels == np.rint(labels)).all())
    if whole and lowest >= 0:
        cause = f"one unit tells two classes apart, and there are {highest + 1:g}"
        remedy = f"{highest + 1:g} units with a softmax and a categorical cross-entropy"
    elif whole and {lowest, highest} == {-1.0, 1.0}:
        cause = "labels of -1 and 1 where the loss takes 0 and 1: it falls without end"
        remedy = "(labels + 1) / 2, or a hinge loss"
    else:
        cause = "a cross-entropy for targets that are numbers, not classes"
        remedy = "MSELoss (mean_squared_error) and a last layer without an activation"
    return Mismatch(
        "labels_not_binary",
        sure=True,
        hopeless=whole and lowest >= 0,
        statistic="max" if highest > 1 else "min",
        value=highest if highest > 1 else lowest,
        threshold=1.0 if highest > 1 else 0.0,
        seen=f"a binary cross-entropy is given labels from {lowest:.3g} to {highest:.3g}",
        cause=cause,
        remedy=remedy,
    )


def _targets_out_of_reach(given: Given) -> Mismatch | None:
    """A bounded last activation before targets that go beyond it."""
    if given.identity.loss not in _REGRESSION:
        return None
    labels = np.asarray(given.compared.labels, np.float64)
    limits, known = _limits(given)
    if limits is None or labels.size < 2 or not np.isfinite(labels).all():
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
        seen=f"predictions lie between {given.form.lowest:.3g} and {given.form.highest:.3g}, and "
        f"targets between {labels.min():.4g} and {labels.max():.4g}",
        cause=f"{name} at the end of the model: R2 cannot be more than {1 - lost:.2g}",
        remedy="a last layer without an activation, or targets scaled to its range",
    )


def _limits(given: Given) -> tuple[tuple[float, float] | None, bool]:
    """Return the range of the last activation, and whether that is known from the model."""
    form = given.form
    limits = _RANGES.get(given.activation)
    if limits and _inside(form, limits):
        return limits, True
    predictions = given.compared.predictions
    if form.lowest >= 0 and form.zeros >= _PINNED:
        return (0.0, math.inf), False
    for low, high in ((0.0, 1.0), (-1.0, 1.0)):
        border = np.minimum(abs(predictions - low), abs(predictions - high)) < 1e-3
        if form.lowest >= low and form.highest <= high and border.mean() >= _PINNED:
            return (low, high), False
    return None, False


def _inside(form: OutputForm, limits: tuple[float, float]) -> bool:
    return limits[0] - 1e-6 <= form.lowest and form.highest <= limits[1] + 1e-6


def _error_of_shares(given: Given) -> Mismatch | None:
    """A squared or absolute error of probabilities of classes."""
    if given.identity.loss not in _REGRESSION or not given.form.shares:
        return None
    if not one_hot_rows(given.compared.labels):
        return None
    return Mismatch(
        "error_of_shares",
        sure=False,
        hopeless=False,
        statistic="loss",
        value=given.value,
        threshold=0.0,
        seen=f"a {given.identity.loss.replace('_', ' ')} of a softmax over {given.form.width} "
        "classes",
        cause="an error of probabilities has next to no gradient where the model is wrong and sure",
        remedy="a categorical cross-entropy",
    )


# In the order in which they are asked; of several that hold, the first is told.
CHECKS: tuple[Callable[[Given], Mismatch | None], ...] = (
    _one_unit_softmax,
    _broadcast,
    _labels_out_of_range,
    _no_logarithms,
    _twice,
    _no_probabilities,
    _targets_out_of_reach,
    _error_of_shares,
)
