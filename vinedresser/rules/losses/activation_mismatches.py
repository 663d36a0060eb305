"""Checks for last activations that contradict the loss or the targets."""

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
    "double_activation",
]

# Ranges of bounded activations.
_RANGES = {
    "relu": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softplus": (0.0, math.inf),
}
# Minimum loss of R2 due to an activation.
_OUT_OF_REACH = 0.1
# Share of entries on the border of a range; a linear layer does not produce such entries.
_PINNED = 0.1


def one_unit_softmax(given: Given) -> Mismatch | None:
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
        remedy="use sigmoid instead of softmax on the single unit, or two units with softmax and "
        "a categorical cross-entropy",
    )


def double_activation(given: Given) -> Mismatch | None:
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
        return _on_logits(
            "sigmoid", "what looks like sigmoid", math.log(2) / 2, sure=False, form=form
        )
    if form.lowest >= 0 and form.zeros >= _PINNED:
        return _on_logits("relu", "relu", 0.0, sure=False, form=form)
    return None


def _on_logits(
    kind: str, activation: str, floor: float, *, sure: bool, form: OutputForm
) -> Mismatch:
    limit = f", so that the loss cannot fall below {floor:.3g}" if floor and sure else ""
    return Mismatch(
        kind,
        sure=sure,
        hopeless=False,
        statistic="max",
        value=form.highest,
        threshold=1.0,
        seen=f"a loss that takes logits receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}{', with rows that sum to 1' if form.shares else ''}",
        cause=f"the model ends in {activation}, but the loss applies its own activation{limit}",
        remedy="remove the last activation: the loss needs the raw outputs of the last layer",
    )


def no_probabilities(given: Given) -> Mismatch | None:
    """Return the mismatch of unsuitable outputs for a loss that takes probabilities."""
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
        seen=f"a loss that takes probabilities receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}{'' if outside else ', with rows that do not sum to 1'}",
        cause=f"the model does not end in {wanted}: the loss clips values that are no "
        "probabilities, which removes their gradient",
        remedy=f"add {wanted} at the end of the model, or use a loss that takes logits "
        "(from_logits=True; in PyTorch "
        f"{'BCEWithLogitsLoss' if wanted == 'sigmoid' else 'CrossEntropyLoss'})",
    )


def no_logarithms(given: Given) -> Mismatch | None:
    """Return the mismatch of unsuitable outputs for a loss that takes log-probabilities."""
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
        seen=f"a loss that takes log-probabilities receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}",
        cause="the outputs are probabilities without their logarithm: the loss has almost no "
        "gradient"
        if form.shares
        else "there is no log_softmax at the end of the model: the loss decreases without bound",
        remedy="add log_softmax at the end of the model, or use CrossEntropyLoss on the raw "
        "outputs of the last layer",
    )


def targets_out_of_reach(given: Given) -> Mismatch | None:
    """Return the mismatch of a bounded last activation for targets beyond its range."""
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
    """Return the mismatch of a squared or absolute error of class probabilities."""
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
        seen=f"the loss is a {given.identity.loss.replace('_', ' ')} of a softmax over "
        f"{given.form.width} classes",
        cause="an error of probabilities has almost no gradient where the model is confident but "
        "wrong",
        remedy="use a categorical cross-entropy",
    )
