"""Rule: the first losses are far from what the loss and the number of classes imply."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.loss_formulas import row_losses
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["InitialLoss"]

# Looks that count as the beginning.
_START = 3
# A loss this many times its first value has been thrown up.
_THROWN_UP = 10.0
_CONFIDENCE = 0.8
# Reductions of torch and Keras that are no sums.
_MEANS = ("mean", "sum_over_batch_size", "mean_with_sample_weight")


class InitialLoss(SymptomRule):
    """The loss begins on a wrong scale, and the training comes to little or blows up.

    Of a batch whose labels and outputs were seen it is known what a mean over its rows would be,
    and what guessing costs: ln K of K classes, ln 2 of two. Tells of a loss that is a sum instead
    of a mean (``factor`` times the mean of its rows, or by its settings), and of one whose rows
    cost more than ``excess`` + 2 ln K at the start: outputs that are sure before anything was
    learned.

    The second is a hint only, of severity "info": what makes them so is told by others. Says
    nothing of scikit-learn and XGBoost, whose first loss is that after the first step.

    It counts where the outcome is poor (`Outcome`), or as soon as the loss is not finite or ten
    times its first value: a sum with a learning rate that goes with it is no fault.

    Source: Karpathy, "A recipe for training neural networks" (2019): verify the loss at its start.

    Args:
        factor: of the loss over the mean of its rows.
        excess: in nats. Outputs of variance 1 cost 1/2 more than guessing, of variance 4 about 2.
        patience: looks in a row, five steps apart, at which it counts.
    """

    fault = "loss_scale"
    gate = "none"

    def __init__(self, factor: float = 8.0, excess: float = 2.0, patience: int = 1) -> None:
        super().__init__(patience)
        if not factor > 1:
            raise ConfigError(f"factor = {factor:g}: must be greater than 1")
        if not excess > 0:
            raise ConfigError(f"excess = {excess:g}: must be greater than 0")
        self.factor = factor
        self.excess = excess
        self.needs = ()
        self.batches = Batches()
        self.identities = LossIdentities()
        self._begun: dict[str, list[tuple[Compared, float]]] = {}
        self._suspect: Symptom | None = None
        self._first: dict[str, float] = {}
        self._thrown_up = False
        self._late = False
        self._means: set[str] = set()

    def begin(self, info: RunRecord) -> None:
        """Take note of when the first loss is seen, and which losses are means."""
        self._late = info.framework in ("sklearn", "xgboost")
        reductions = ((loss, one.get("settings", {})) for loss, one in info.losses.items())
        # With Keras a mean has penalties on the weights added to it.
        self._means = {loss for loss, one in reductions if one.get("reduction") in _MEANS}

    def looks_at(self, step: Step) -> bool:
        """See `SymptomRule.looks_at`."""
        return step.mode == "train" and bool(self.batches.compared) and not self._late

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        return _graded(super().update(step))

    def finish(self) -> Finding | None:
        """See `SymptomRule.finish`."""
        return _graded(super().finish())

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        for compared in self.batches.compared:
            value = step.scalars.get(f"losses/{compared.loss}")
            begun = self._begun.setdefault(compared.loss, [])
            if value is not None and math.isfinite(value) and len(begun) < _START:
                self._first.setdefault(compared.loss, value)
                begun.append((compared, value))
                self._suspect = self._suspect or self._wrong_scale(compared.loss)
        if self._suspect is None or not self._matters(step):
            return None
        return self._suspect

    def _matters(self, step: Step) -> bool:
        for loss, first in self._first.items():
            value = step.scalars.get(f"losses/{loss}", first)
            self._thrown_up |= not math.isfinite(value) or value > _THROWN_UP * abs(first)
        return self._thrown_up or self.outcome.verdict().kind == "poor"

    def _wrong_scale(self, loss: str) -> Symptom | None:
        """Return what is wrong with the first values of a loss, when it is known what it is."""
        identity, begun = self.identities.of(loss), self._begun[loss]
        if identity is None or len(begun) < _START:
            return None
        means = []
        for compared, _ in begun:
            rows = row_losses(identity.formula, compared.labels, compared.predictions)
            means.append(float(rows.mean()) if rows is not None else math.nan)
        factors = [value / mean for mean, (_, value) in zip(means, begun, strict=True) if mean > 0]
        if len(factors) == _START and min(factors) > self.factor and loss not in self._means:
            return _sum(loss, sorted(factors)[1], means[0])
        return self._too_sure(loss, identity, begun[0][0], means[0])

    def _too_sure(
        self, loss: str, identity: LossIdentity, compared: Compared, mean: float
    ) -> Symptom | None:
        if not identity.loss.endswith("cross_entropy"):
            return None
        binary = identity.loss == "binary_cross_entropy"
        classes = 2 if binary else compared.predictions.shape[-1]
        chance = math.log(classes)
        if not mean > 2 * chance + self.excess:
            return None
        return Symptom(
            tensor=f"losses/{loss}",
            statistic="loss",
            value=mean,
            threshold=chance,
            confidence=_CONFIDENCE,
            seen=f"the loss began at {mean:.4g} where guessing among {classes} classes gives "
            f"{chance:.3g} (ln {classes})",
            cause="outputs that are large before anything was learned: initial weights or inputs "
            "on too large a scale",
            remedy="inputs of mean 0 and variance 1; He or Xavier initialisation, a last layer "
            "with small weights",
            fault="",
        )


def _graded(finding: Finding | None) -> Finding | None:
    """Return a finding, as a hint only where it is not known what made the loss large."""
    if finding is None or finding.fault:
        return finding
    return replace(finding, severity="info")


def _sum(loss: str, factor: float, mean: float) -> Symptom:
    return Symptom(
        tensor=f"losses/{loss}",
        statistic="loss",
        value=factor * mean,
        threshold=mean,
        confidence=_CONFIDENCE,
        seen=f"the loss is {factor:.3g} times the mean of its rows",
        cause="a sum over the batch instead of a mean: gradients, and so the steps, are as many "
        "times as large",
        remedy=f'reduction="mean", or a learning rate 1/{factor:.3g} of what it is',
        evidence={"factor": factor, "mean_of_rows": mean},
    )
