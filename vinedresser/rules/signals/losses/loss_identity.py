"""Identify the loss of a training by its name or else by its values."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from vinedresser.frameworks.loss_functions import is_other_loss, loss_form, measures_errors
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.loss_formulas import FORMULAS, row_losses
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["LossIdentities", "LossIdentity", "agreeing", "compares_numbers", "identified"]

# The loss that the hook computes for classifiers of scikit-learn.
_LOG_LOSS = "log_loss"
# Losses of XGBoost's objectives; for squared errors it is the root of the mean.
_OBJECTIVES: dict[str, tuple[str, str, str]] = {
    "binary:logistic": ("binary_cross_entropy", "probabilities", "mean"),
    "binary:logitraw": ("binary_cross_entropy", "logits", "mean"),
    "multi:softprob": ("cross_entropy", "probabilities", "mean"),
    "reg:absoluteerror": ("mean_absolute_error", "", "mean"),
    "reg:squarederror": ("mean_squared_error", "", "root"),
}
# Number of values that must agree to identify a loss.
_CHECKS = 3
# Relative difference between float32 results of different summation orders.
_SAME = 1e-3
_ERRORS = 3.0


class LossIdentity(NamedTuple):
    """The formula of a loss.

    Attributes:
        loss: see `LossForm`.
        takes: see `LossForm`.
        reduction: "mean", "sum" or "root" (of the mean); "part" if the loss is not its value, but
            computed with it.
        by_name: identified by its name, not by its values.
    """

    loss: str
    takes: str
    reduction: str
    by_name: bool

    @property
    def formula(self) -> tuple[str, str]:
        """The key in `loss_formulas.FORMULAS`."""
        return (self.loss, self.takes)


def identified(function: str, compared: Compared, value: float) -> LossIdentity | None:
    """Return the identity of a loss if it is the mean of a function of the rows of a batch.

    Args:
        function: name of the function in `torch.nn.functional`.

    Returns:
        None if the function is not known, or if the loss is something else, such as a sum, a
        weighted mean, or one term of several.
    """
    found = loss_form(function)
    losses = None if found is None else row_losses(found, compared.labels, compared.predictions)
    if found is None or losses is None or not abs(losses.mean() - value) <= _SAME * abs(value):
        return None
    return LossIdentity(*found, "mean", by_name=False)


def compares_numbers(setup: dict[str, Any]) -> bool:
    """Return whether a loss measures errors of numbers, such as the mean squared error.

    Args:
        setup: its entry in `RunRecord.losses`.
    """
    named = "" if setup.get("custom") is True else setup.get("function") or setup.get("type")
    return measures_errors(str(named))


class LossIdentities(Signal):
    """The identity of each loss of the run; that of a plain function follows from its values.

    Args:
        every: train steps between two captures of `Batches`.
    """

    def __init__(self, every: int = 5) -> None:
        self.every = every
        self.batches = Batches(every)
        self._named: dict[str, LossIdentity | None] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._votes: dict[str, Counter[tuple[str, str, str]]] = {}
        self._checks: Counter[str] = Counter()
        self._objective: tuple[str, str, str] | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the losses that the library sets."""
        if info.framework == "sklearn":
            known = LossIdentity("cross_entropy", "probabilities", "mean", by_name=True)
            self._named[_LOG_LOSS] = known
        if info.framework == "xgboost":
            objective = str(info.losses.get("objective", {}).get("type"))
            self._objective = _OBJECTIVES.get(objective)

    def on_record(self, info: RunRecord) -> None:
        """Read the settings of losses that were not known before."""
        self._settings = dict(info.losses)
        self._named = {loss: one for loss, one in self._named.items() if one is not None}

    def of(self, loss: str) -> LossIdentity | None:
        """Return the identity of a loss; None if it is not known (yet)."""
        if loss not in self._named:
            self._named[loss] = self._by_name(loss)
        return self._named[loss] or self._by_values(loss)

    def type_of(self, loss: str) -> str:
        """Return the class or function of a framework that is a loss; "" if none or unknown."""
        setup = self._settings.get(loss, {})
        return "" if setup.get("custom") is True else str(setup.get("type", ""))

    def weighted(self, loss: str) -> bool:
        """Return whether a loss weighs classes or rows."""
        settings = self._settings.get(loss, {}).get("settings", {})
        return any(settings.get(one) for one in ("weight", "pos_weight"))

    def function(self, loss: str) -> LossIdentity | None:
        """Return the identity of the function that computes a loss or a part of it.

        Returns:
            The identity; None if the function is not known. Its value may differ from the loss.
        """
        named = str(self._settings.get(loss, {}).get("function", ""))
        found = loss_form(named)
        return LossIdentity(*found, "mean", by_name=False) if found else None

    def part(self, loss: str) -> LossIdentity | None:
        """Return the identity of the function of a loss whose values show that it is not all of it.

        That is a loss of several terms, or with other weights.

        Returns:
            An identity with reduction "part"; None if the function is not known, or not yet whether
            the loss is its value.
        """
        found = self.function(loss) if self._checks[loss] >= _CHECKS else None
        return None if found is None or self.of(loss) else found._replace(reduction="part")

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode != "train":
            return
        for compared in self.batches.compared:
            value = step.scalars.get(f"losses/{compared.loss}")
            if value is None or not np.isfinite(value) or self._checks[compared.loss] >= _CHECKS:
                continue
            if self.of(compared.loss) is None:
                self._checks[compared.loss] += 1
                votes = self._votes.setdefault(compared.loss, Counter())
                votes.update(agreeing(compared, value, complete=compared.complete))

    def _by_name(self, loss: str) -> LossIdentity | None:
        if self._objective is not None:
            identity = LossIdentity(*self._objective, by_name=True)
            # XGBoost names its default objective if the training has a custom one, with another
            # metric as its loss.
            other = identity.reduction == "root" and "-" in loss and not loss.endswith("-rmse")
            return None if other else identity
        setup = self._settings.get(loss, {})
        if setup.get("custom") is True:
            return None
        named = str(setup.get("type") or loss.rpartition(".")[2])
        found = loss_form(named)
        if found is None:
            return None
        settings = setup.get("settings", {})
        takes = "logits" if settings.get("from_logits") else found.takes
        reduction = "sum" if settings.get("reduction") == "sum" else "mean"
        return LossIdentity(found.loss, takes, reduction, by_name=True)

    def _is_another(self, loss: str) -> bool:
        """Return whether the name of a loss tells that its formula is not one of `FORMULAS`."""
        setup = self._settings.get(loss, {})
        named = (setup.get("type"), setup.get("function"), loss.rpartition(".")[2])
        return any(is_other_loss(str(one)) for one in named if one)

    def _by_values(self, loss: str) -> LossIdentity | None:
        """Return the first entry of `FORMULAS` that agrees with all values."""
        if self._checks[loss] < _CHECKS or self._is_another(loss):
            return None
        agreed = [key for key, votes in self._votes[loss].items() if votes == _CHECKS]
        order = list(FORMULAS)
        agreed.sort(key=lambda key: order.index(key[:2]))
        return LossIdentity(*agreed[0], by_name=False) if agreed else None


def agreeing(compared: Compared, value: float, *, complete: bool) -> list[tuple[str, str, str]]:
    """Return the formulas and reductions that result in a loss's value.

    Args:
        compared: labels and predictions.
        complete: all rows of the batch were captured; otherwise the mean has an error.

    Returns:
        (loss, takes, reduction) of each that agrees.
    """
    found = []
    for formula in FORMULAS:
        losses = row_losses(formula, compared.labels, compared.predictions)
        if losses is None:
            continue
        mean = float(losses.mean())
        error = 0.0 if complete else _ERRORS * float(losses.std()) / np.sqrt(len(losses))
        if abs(mean - value) <= max(_SAME * abs(value), error):
            found.append((*formula, "mean"))
        # Some rows of a batch do not determine the sum.
        per_entry = formula[0] != "cross_entropy"
        total = mean * (compared.predictions.size if per_entry else len(losses))
        if complete and abs(total - value) <= _SAME * abs(value) and total != mean:
            found.append((*formula, "sum"))
    return found
