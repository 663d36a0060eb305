"""Check of outputs and labels that are broadcast against each other."""

from __future__ import annotations

import numpy as np

from vinedresser.rules.losses.mismatch import REGRESSION, Given, Mismatch
from vinedresser.rules.signals.losses.compared import Compared


def broadcast(given: Given) -> Mismatch | None:
    """Return the mismatch of shapes that are broadcast against each other.

    The loss does so, or the loop before it calls the loss.
    """
    labels, predictions = given.compared.labels, given.compared.predictions
    rows = len(labels)
    if _are_all_pairs(given.compared):
        seen = f"predictions and labels are [N, N] ({labels.shape[1]} columns)"
        return _of_pairs(given.compared, f"{seen}, each the same row or column repeated")
    column = labels if labels.ndim == 2 else predictions
    if {labels.ndim, predictions.ndim} != {1, 2} or column.shape[1] != 1 or rows < 2:
        return None
    if not (given.broadcasts or _value_of_all_pairs(given)):
        return None
    return _of_pairs(
        given.compared,
        f"predictions are [N{', 1' * (predictions.ndim - 1)}] and labels "
        f"[N{', 1' * (labels.ndim - 1)}]",
    )


def _of_pairs(compared: Compared, seen: str) -> Mismatch:
    rows = compared.labels.shape[-1] if compared.labels.shape[-1] > 1 else len(compared.labels)
    return Mismatch(
        "broadcast",
        sure=True,
        statistic="ndim",
        value=float(compared.predictions.ndim),
        threshold=float(compared.labels.ndim),
        seen=f"{seen}, so the loss compares each prediction with each label ({rows} x {rows} pairs "
        f"for {rows} rows)",
        cause="shapes [N, 1] and [N] broadcast to [N, N]: the model can only learn the mean of "
        "the labels",
        remedy="use labels[:, None] or predictions.squeeze(1)",
    )


def _are_all_pairs(compared: Compared) -> bool:
    """Return whether labels repeat one row and predictions one column, or the other way round."""
    labels, predictions = np.asarray(compared.labels, np.float64), compared.predictions
    if labels.ndim != 2 or labels.shape != predictions.shape or min(labels.shape) < 2:
        return False
    return any(
        bool((one == one[:1]).all() and (other == other[:, :1]).all())
        and bool((one != one[:, :1]).any() and (other != other[:1]).any())
        for one, other in ((labels, predictions), (predictions, labels))
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
