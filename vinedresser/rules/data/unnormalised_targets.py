"""Rule: the targets of a regression are far from the scale of a network's first outputs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.bounds import require_above
from vinedresser.rules.data.scale_rule import ScaleRule
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.symptom import Symptom
from vinedresser.store.reading.step import Step

# Confidence, and the lower confidence if the root mean square of the predictions is between these
# multiples of that of the targets.
_CONFIDENCE, _UNSURE = 0.85, 0.7
_NEAR, _FAR = 0.5, 2.0
# Predictions approach the targets if their size has reached this share of that of the targets and
# this multiple of the share at the first check.
_REACHED, _GROWN = 0.1, 2.0


class UnnormalisedTargets(ScaleRule):
    """The targets of a regression are far from the scale of a network's first outputs.

    Fires when the root mean square of the targets (of the output with the largest) is above
    ``size`` or below 1/``size`` at ``patience`` consecutive checks, in a training with a poor
    outcome (`Outcome`), or at the first check at which the loss is not finite. A new network
    predicts values of about 1. The gradient of a squared error grows with the targets: with plain
    gradient descent the first steps are too large by this factor. Adam's steps do not grow, so a
    bias takes about mean/(learning rate) steps to reach the mean. A rate that suits such targets is
    not warned of before the outcome is known: the predictions grow quickly towards the targets.

    Args:
        size: root mean square. Standardised targets have 1; targets of 15 occurred both in
            successful trainings and in trainings that failed for other reasons.
        patience: number of consecutive checks, five steps apart.
    """

    fault = "unnormalised_targets"
    stage = "data"
    consequences = ("outcome", "inside", "learning_rate_too_high", "loss_scale")
    position = 30
    inapplicable = Reasons(xgboost="trees begin with the mean of the targets, of any scale")
    left_out_of = ("classification", "language_model")

    def __init__(self, size: float = 100.0, patience: int = 5) -> None:
        require_above(1, size=size)
        super().__init__(patience)
        self.size = size
        self.batches = Batches()
        self.fit = Fit()
        self.guessing = Guessing()
        # Ratio of the size of the predictions to that of the targets at the first check.
        self._first: float | None = None

    def is_checked(self, step: Step) -> bool:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.is_checked`: every train step with regression targets."""
        return bool(self._regressions())

    def detect(self, step: Step) -> Symptom | None:  # noqa: ARG002 (the signal has read it)
        """See `SymptomRule.detect`."""
        for compared in self._regressions():
            targets = np.asarray(self.guessing.targets(compared), np.float64)
            labels = targets.reshape(len(targets), -1)
            sizes = np.sqrt(np.mean(labels**2, axis=0))
            most = int(sizes.argmax()) if len(sizes) else 0
            if not len(sizes) or not np.isfinite(sizes).all():
                continue
            size = own = float(sizes[most])
            if len(compared.labels) == 1:
                # Such a row counts, too: one outlier changes the size of all first rows.
                own = float(np.abs(compared.labels).max(initial=0))
            if self._is_far(size) and self._is_far(own):
                return self._symptom(compared, labels[:, most], size)
        return None

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: the predictions do not approach the targets either."""
        share = symptom.evidence["predictions_rms"] / symptom.value
        grown = self._first is not None and share > _GROWN * self._first
        approaching = grown and _REACHED < share < _FAR
        return not approaching and super().warns_early(symptom, outcome)

    def _is_far(self, size: float) -> bool:
        return size > self.size or 0 < size < 1 / self.size

    def _regressions(self) -> list[Compared]:
        series = self.fit.of("train")
        return [
            one
            for one in self.batches.compared
            if one.loss in series and series[one.loss].task == "values"
        ]

    def _symptom(self, compared: Compared, labels: NDArray[np.float64], size: float) -> Symptom:
        mean, std = float(labels.mean()), float(labels.std())
        predicted = float(np.sqrt(np.mean(compared.predictions**2)))
        if self._first is None:
            self._first = predicted / size
        away = not math.isfinite(predicted) or not _NEAR < predicted / size < _FAR
        return Symptom(
            tensor=self.batches.tensor("labels", compared.loss),
            statistic="rms",
            value=size,
            threshold=self.size if size > 1 else 1 / self.size,
            confidence=_CONFIDENCE if away else _UNSURE,
            seen=f"the targets have a root mean square of {size:.3g} (mean {mean:.4g}, standard "
            f"deviation {std:.3g}); about 1 is normal; that of the predictions is {predicted:.3g}",
            cause="the targets are not standardised",
            remedy=f"train on (targets - {mean:.4g}) / {std or 1:.3g} (mean and standard "
            "deviation of the training targets) and invert this for predictions; use the "
            "logarithm of targets that span several powers of ten",
            evidence={"rms": size, "mean": mean, "std": std, "predictions_rms": predicted},
        )
