"""Checks of losses that receive the outputs of a softmax but are not made for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vinedresser.rules.losses.mismatch import REGRESSION, Given, Mismatch, OutputForm
from vinedresser.rules.signals.losses.loss_formulas import one_hot_rows

__all__ = ["divergence_of_shares", "error_of_shares", "is_divergence", "shares_of_several"]

# Share of rows whose labels do not sum to 1; a few of one label each may have lost it.
_SEVERAL = 0.2
# Class and function of PyTorch.
_DIVERGENCES = ("KLDivLoss", "kl_div")


def error_of_shares(given: Given) -> Mismatch | None:
    """Return the mismatch of a squared or absolute error of class probabilities."""
    if given.identity.loss not in REGRESSION or not given.form.shares:
        return None
    if not one_hot_rows(given.compared.labels):
        return None
    return Mismatch(
        "error_of_shares",
        sure=False,
        statistic="loss",
        value=given.value,
        threshold=0.0,
        seen=f"the loss is a {given.identity.loss.replace('_', ' ')} of a softmax over "
        f"{given.form.width} classes",
        cause="an error of probabilities has almost no gradient where the model is confident but "
        "wrong",
        remedy="use a categorical cross-entropy",
    )


def shares_of_several(given: Given) -> Mismatch | None:
    """Return the mismatch of a softmax over labels of which a row has several, or none."""
    form, labels = given.form, np.asarray(given.compared.labels, np.float64)
    if given.identity.loss != "binary_cross_entropy" or not form.shares:
        return None
    if labels.shape != given.compared.predictions.shape or not np.isin(labels, (0, 1)).all():
        return None
    counts = labels.sum(-1)
    if not (counts != 1).mean() > _SEVERAL:
        return None
    return Mismatch(
        "shares_of_several",
        sure=True,
        statistic="max",
        value=form.highest,
        threshold=1.0,
        seen=f"each row of the predictions sums to 1, but of {form.width} labels a row has "
        f"{counts.min():.0f} to {counts.max():.0f}",
        cause="the model ends in softmax, whose outputs exclude each other: it cannot predict "
        "several labels, or none",
        remedy="use sigmoid instead of softmax, or BCEWithLogitsLoss on the raw outputs of the "
        "last layer",
    )


def is_divergence(setup: dict[str, Any]) -> bool:
    """Return whether a loss of PyTorch is a divergence from its targets.

    Args:
        setup: its entry in `RunRecord.losses`.
    """
    named = setup.get("function") or setup.get("type")
    return setup.get("custom") is not True and named in _DIVERGENCES


def divergence_of_shares(form: OutputForm) -> Mismatch | None:
    """Return the mismatch of probabilities for a divergence, which takes their logarithms.

    These are never above 0, so their rows cannot sum to 1.
    """
    if not form.shares or form.width < 2:
        return None
    return Mismatch(
        "no_logarithms",
        sure=True,
        statistic="max",
        value=form.highest,
        threshold=0.0,
        seen=f"KLDivLoss, which takes log-probabilities, receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}, with rows that sum to 1",
        cause="the outputs are probabilities without their logarithm, so the loss is no "
        "divergence: it falls below 0, and its gradient does not depend on the outputs",
        remedy="use log_softmax instead of softmax before KLDivLoss; only its targets are "
        "probabilities",
    )
