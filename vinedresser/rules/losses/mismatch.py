"""Input and result of a check of outputs, labels and loss."""

from __future__ import annotations

from typing import NamedTuple

from vinedresser.rules.losses.output_form import OutputForm
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentity

__all__ = ["REGRESSION", "Given", "Mismatch"]

# Regression losses, as named by `LossIdentity`.
REGRESSION = ("mean_squared_error", "mean_absolute_error", "huber")


class Given(NamedTuple):
    """Input of a check.

    Attributes:
        identity: identity of the loss.
        compared: labels and predictions that it compared.
        form: properties of the predictions.
        activation: last activation of the model; "" if none or unknown.
        broadcasts: whether the loss broadcasts its arguments against each other.
        value: value of the loss.
    """

    identity: LossIdentity
    compared: Compared
    form: OutputForm
    activation: str
    broadcasts: bool
    value: float


class Mismatch(NamedTuple):
    """A contradiction between outputs, labels and loss.

    Attributes:
        kind: short name.
        sure: whether it is wrong regardless of the outcome; otherwise it counts only if that is
            poor.
        hopeless: whether nothing can be learned.
        statistic: statistic that shows it.
        value: value of the statistic.
        threshold: threshold of the statistic.
        seen: observation.
        cause: cause.
        remedy: remedy.
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
