"""Last activations that contradict the loss or the targets behind them."""

from __future__ import annotations

import math

import numpy as np

from vinedresser.rules.losses.mismatch import REGRESSION, Given, Mismatch
from vinedresser.rules.losses.output_form import OutputForm
from vinedresser.rules.signals.losses.loss_formulas import one_hot_rows

__all__ = [
    "error_of_shares",
    "no_logarithms",
    "no_probabilities",
    "one_unit_softmax",
    "targets_out_of_reach",
    "twice",
]

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


def one_unit_softmax(given: Given) -> Mismatch | None:
    """A softmax over one unit."""
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


def twice(given: Given) -> Mismatch | None:
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


def no_probabilities(given: Given) -> Mismatch | None:
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


def no_logarithms(given: Given) -> Mismatch | None:
    """Raw outputs, or probabilities, for a loss that takes logarithms of probabilities."""
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


def targets_out_of_reach(given: Given) -> Mismatch | None:
    """A bounded last activation before targets that go beyond it."""
    if given.identity.loss not in REGRESSION:
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


def error_of_shares(given: Given) -> Mismatch | None:
    """A squared or absolute error of probabilities of classes."""
    if given.identity.loss not in REGRESSION or not given.form.shares:
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
