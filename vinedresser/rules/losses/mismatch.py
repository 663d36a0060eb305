"""What a check of outputs, labels and a loss is given, and what it tells."""

from __future__ import annotations

from typing import NamedTuple

from vinedresser.rules.losses.output_form import OutputForm
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentity

__all__ = ["REGRESSION", "Given", "Mismatch"]

# The losses of targets that are values, as `LossIdentity` calls them.
REGRESSION = ("mean_squared_error", "mean_absolute_error", "huber")


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
