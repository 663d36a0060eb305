"""Input and result of a check of outputs, labels and loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentity

__all__ = [
    "REGRESSION",
    "Given",
    "Mismatch",
    "OutputForm",
    "output_form",
    "softmax_over_batch",
]

# Tolerance for the sum of a row of float32 probabilities.
_ROUNDING = 1e-3
# Range of values: outputs of a dead network vary less, those of a learning sigmoid more.
_LIVELY = 0.5


class OutputForm(NamedTuple):
    """Properties shared by all rows of some outputs.

    Attributes:
        width: length of the last axis; 1 for [rows].
        lowest: minimum of all entries.
        highest: maximum of all entries.
        shares: whether each row sums to one without negative entries, as after softmax.
        logarithms: whether the exponentials of each row sum to one.
        ones: whether each row has a single entry of 1, as after softmax over one unit.
        zeros: share of entries that are exactly zero.
    """

    width: int
    lowest: float
    highest: float
    shares: bool
    logarithms: bool
    ones: bool
    zeros: float

    @property
    def between(self) -> bool:
        """Whether all entries lie between 0 and 1."""
        return self.lowest >= 0 and self.highest <= 1 + _ROUNDING

    @property
    def lively(self) -> bool:
        """Whether the entries vary, so that values between 0 and 1 are not just all equal."""
        return self.highest - self.lowest > _LIVELY


def output_form(predictions: NDArray[np.float64]) -> OutputForm | None:
    """Return the form of outputs, or None if they are empty or not finite.

    Args:
        predictions: outputs, float64 [rows, ..., classes] or [rows].
    """
    if not predictions.size or not np.isfinite(predictions).all():
        return None
    width = predictions.shape[-1] if predictions.ndim > 1 else 1
    several = width > 1
    lowest, highest = float(predictions.min()), float(predictions.max())
    sums = predictions.sum(-1) if several else np.zeros(1)
    exponentials = np.exp(np.minimum(predictions, 1)).sum(-1) if several else np.zeros(1)
    return OutputForm(
        width,
        lowest,
        highest,
        shares=several and lowest >= 0 and bool((abs(sums - 1) < _ROUNDING).all()),
        logarithms=several and highest < _ROUNDING and bool((abs(exponentials - 1) < 1e-2).all()),
        ones=not several and lowest == highest == 1,
        zeros=float((predictions == 0).mean()),
    )


# Regression losses, as named by `LossIdentity`.
REGRESSION = ("mean_squared_error", "mean_absolute_error", "huber")


class Given(NamedTuple):
    """Input of a check.

    Attributes:
        compared: labels and predictions that it compared.
        targets: its labels, of a batch of one row those of the first batches (`Guessing.targets`).
        form: properties of the predictions.
        activation: last activation of the model; "" if none or unknown.
        broadcasts: whether the loss broadcasts its arguments against each other.
        value: value of the loss.
        negated: whether the optimizer minimises the negative of the loss function.
        dropout: path of the dropout behind the last weights of the model; "" if there is none.
    """

    identity: LossIdentity
    compared: Compared
    targets: NDArray[Any]
    form: OutputForm
    activation: str
    broadcasts: bool
    value: float
    negated: bool
    dropout: str

    @property
    def over_batch(self) -> bool:
        """Whether exponentials of predictions [rows, classes] sum to 1 over the rows."""
        return self._over_rows(np.exp(np.minimum(self.compared.predictions, 1)))

    @property
    def shares_over_batch(self) -> bool:
        """Whether predictions [rows, classes] sum to 1 over the rows, and not over the classes."""
        several = self.form.width > 1 and self.form.lowest >= 0 and not self.form.shares
        return several and self._over_rows(self.compared.predictions)

    def _over_rows(self, values: NDArray[np.float64]) -> bool:
        if values.ndim != 2 or len(values) < 2:
            return False
        return bool((abs(values.sum(0) - 1) < _ROUNDING).all())


class Mismatch(NamedTuple):
    """A contradiction between outputs, labels and loss.

    Attributes:
        kind: short name.
        sure: whether it is wrong regardless of the outcome; otherwise it counts only if that is
            poor.
        statistic: statistic that shows it.
        value: value of the statistic.
        threshold: threshold of the statistic.
        seen: observation.
        hopeless: whether nothing can be learned.
        of: collection of the tensor that shows it, "predictions" or "labels".
        hint: whether a training with it that does well gets a hint at its end.
        least_rows: minimum number of rows that show it: fewer may look like it by chance.
    """

    kind: str
    sure: bool
    statistic: str
    value: float
    threshold: float
    seen: str
    cause: str
    remedy: str
    hopeless: bool = False
    of: str = "predictions"
    hint: bool = False
    least_rows: int = 0


def softmax_over_batch() -> Mismatch:
    """Return the mismatch of a softmax over the batch instead of the classes."""
    return Mismatch(
        "softmax_over_batch",
        sure=True,
        statistic="sum",
        value=1.0,
        threshold=1.0,
        seen="the probabilities of each class sum to 1 over the rows of the batch, and those of a "
        "row do not",
        cause="softmax or log_softmax is taken over the batch (dim=0) instead of the classes, so "
        "that rows compete with each other",
        remedy="use dim=-1, or CrossEntropyLoss on the raw outputs of the last layer",
    )
