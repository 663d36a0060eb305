"""Rule: the first losses are far from what the loss and the number of classes imply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.applicability import AFTER_THE_FIRST_STEP, Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.loss_formulas import row_losses
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.rows import are_tokens
from vinedresser.rules.symptom import Symptom
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of initial checks.
_START = 3
# Maximum relative difference of the factors of an exact multiple, and minimum of its values.
_SAME, _VARIES = 1e-3, 0.02
# Growth over the first value from which a loss has diverged.
_THROWN_UP = 10.0
# Ratio to the bound of a loss that only initial weights explain, and the inputs' maximum root mean
# square then.
_FAR = 2.0
_USUAL_INPUTS = 3.0
# The same ratio if the inputs are tokens. Scores by an embedding of unit variance that is also the
# first layer grow with the square root of its size, and start at half of that with 2000 numbers.
_FAR_TOKENS = 10.0
_CONFIDENCE = 0.8
# Minimum share of rows whose own class has the lowest score because of a margin, and their number
# and that of classes.
_LOWEST = 0.5
_ROWS, _CLASSES = 16, 4
# Reductions in PyTorch and Keras that are not sums.
_MEANS = ("mean", "sum_over_batch_size", "mean_with_sample_weight")
# Optimizers whose steps do not grow with the gradients, in lower case.
_NORMALISING = frozenset(
    ("adam", "adamw", "adamax", "nadam", "radam", "rmsprop", "adagrad", "adadelta", "rprop", "lion")
)


class InitialLoss(OnceRule):
    """The loss starts on a wrong scale.

    From captured labels and outputs of a batch, the rule computes the mean loss over its rows and
    the loss at chance level: ln K for K classes, ln 2 for two. Fires for a loss that is a sum
    instead of a mean (``factor`` times the mean of its rows, or by its settings), or exactly such a
    multiple of its function, if the outcome is poor (`Outcome`), or as soon as the loss is not
    finite or ten times its first value: a sum with a matching learning rate is no fault, nor is one
    whose optimizers normalise the gradients, as Adam does.

    Warns of outputs that are confident before anything was learned, which is no root cause: the
    rows start above twice ``excess`` + 2 ln K while the inputs have a root mean square of at most
    3, or above ten times that while they are tokens: then the initial weights are too large, and
    the first steps only undo that. Not for losses that lower the score of each row's own class by a
    margin, as ArcFace does (Deng et al., CVPR 2019): there, it is the lowest in most rows, which it
    never is for outputs that do not know the labels.

    Does not apply to scikit-learn and XGBoost, whose first loss is measured after the first step.

    Source: Karpathy, "A recipe for training neural networks" (2019): verify the loss at
    initialisation.

    Args:
        factor: ratio of the loss to the mean of its rows.
        excess: nats above chance level. Outputs of variance 1 cost 1/2 more than chance level, of
            variance 4 about 2.
    """

    fault = "loss_scale"
    stage = "loss"
    consequences = ("outcome", "inside", "learning_rate_too_high")
    position = 170
    inapplicable = Reasons(xgboost=AFTER_THE_FIRST_STEP, sklearn=AFTER_THE_FIRST_STEP)

    def __init__(self, factor: float = 8.0, excess: float = 2.0) -> None:
        require_above(1, factor=factor)
        require_above(0, excess=excess)
        self.factor = factor
        self.excess = excess
        self.batches = Batches()
        self.identities = LossIdentities()
        self.outcome = Outcome()
        # By loss: step, labels and predictions, and value at the first checks.
        self._begun: dict[str, list[tuple[int, Compared, float]]] = {}
        self._suspect: Symptom | None = None
        self._thrown_up = False
        # Ratio to the bound of a first loss that the inputs do not explain; NaN before the inputs.
        self._far = math.nan
        self._means: set[str] = set()
        # Whether the steps are proportional to the loss.
        self._scaled = True

    def begin(self, info: RunRecord) -> None:
        """Read which losses are means."""
        # These measure the first loss after the first step.
        self._done = info.framework in ("sklearn", "xgboost")
        # The settings of a function without a type are those of a part of the loss.
        typed = {loss: one for loss, one in info.losses.items() if one.get("type")}
        reductions = ((loss, one.get("settings", {})) for loss, one in typed.items())
        # In Keras, weight penalties are added to a mean.
        self._means = {loss for loss, one in reductions if one.get("reduction") in _MEANS}
        kinds = {str(optimizer.get("type")).lower() for optimizer in info.optimizers}
        self._scaled = not kinds or not kinds <= _NORMALISING

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if not self.batches.compared:
            return None
        if math.isnan(self._far) and (inputs := [*self.batches.inputs.values()]):
            self._far = _unexplained(inputs)
        for compared in self.batches.compared:
            value = step.scalars.get(f"losses/{compared.loss}")
            begun = self._begun.setdefault(compared.loss, [])
            if value is not None and math.isfinite(value) and len(begun) < _START:
                begun.append((step.step, compared, value))
                self._suspect = self._suspect or self._wrong_scale(compared.loss)
        suspect = self._suspect
        # A sum is no fault by itself: its symptom has no fault of its own.
        sums = suspect is not None and suspect.fault is None
        if suspect is None or (sums and not self._matters(step)):
            return None
        # A training may learn from initial weights that are too large: it is not stopped.
        severity = None if sums else self.without_stop
        return self.found(step, since=step.step, severity=severity, **suspect.reported(""))

    def _matters(self, step: Step) -> bool:
        firsts = {loss: begun[0][2] for loss, begun in self._begun.items() if begun}
        for loss, first in firsts.items():
            value = step.scalars.get(f"losses/{loss}", first)
            self._thrown_up |= not math.isfinite(value) or value > _THROWN_UP * abs(first)
        return self._thrown_up or self.outcome.verdict().kind == "poor"

    def _wrong_scale(self, loss: str) -> Symptom | None:
        """Return the symptom in the first values of a loss with a known formula."""
        begun = self._begun[loss]
        if len(begun) < _START:
            return None
        identity = self.identities.of(loss)
        if identity is None:
            return self._multiple(loss, self.identities.part(loss))
        means = []
        for _, compared, _ in begun:
            rows = row_losses(identity.formula, compared.labels, compared.predictions)
            means.append(float(rows.mean()) if rows is not None else math.nan)
        pairs = zip(means, begun, strict=True)
        factors = [value / mean for mean, (_, _, value) in pairs if mean > 0]
        large = len(factors) == _START and min(factors) > self.factor
        if large and self._scaled and loss not in self._means:
            return _sum(loss, sorted(factors)[1], means[0])
        # Initial weights do not explain the loss after the first updates.
        late, compared, _ = begun[0]
        return None if late else self._too_sure(loss, identity, compared, means[0])

    def _multiple(self, loss: str, part: LossIdentity | None) -> Symptom | None:
        """Return the symptom of a loss that is exactly a large multiple of its function."""
        begun = self._begun[loss]
        if part is None or not self._scaled or not all(one.complete for _, one, _ in begun):
            return None
        losses = [row_losses(part.formula, one.labels, one.predictions) for _, one, _ in begun]
        means = [math.nan if rows is None else float(rows.mean()) for rows in losses]
        if not min(means) > 0 or max(means) < (1 + _VARIES) * min(means):
            return None
        factors = [value / mean for mean, (_, _, value) in zip(means, begun, strict=True)]
        if min(factors) < self.factor or max(factors) > (1 + _SAME) * min(factors):
            return None
        return _sum(loss, factors[0], means[0])

    def _too_sure(
        self, loss: str, identity: LossIdentity, compared: Compared, mean: float
    ) -> Symptom | None:
        if not identity.loss.endswith("cross_entropy"):
            return None
        binary = identity.loss == "binary_cross_entropy"
        classes = 2 if binary else compared.predictions.shape[-1]
        chance = math.log(classes)
        if not mean > self._far * (2 * chance + self.excess) or _has_margin(compared):
            return None
        return Symptom(
            tensor=f"losses/{loss}",
            statistic="loss",
            value=mean,
            threshold=chance,
            confidence=_CONFIDENCE,
            seen=f"the loss started at {mean:.4g}; chance level for {classes} classes is "
            f"{chance:.3g} (ln {classes})",
            cause="the outputs are large before anything was learned: the scale of the initial "
            "weights is too large",
            remedy="standardise the inputs to mean 0 and variance 1; use He or Xavier "
            "initialisation and small weights in the last layer",
            fault="",
        )


def _has_margin(compared: Compared) -> bool:
    """Return whether a loss has lowered the score of each row's own class."""
    own = compared.class_numbers
    if own is None or own.size < _ROWS or compared.classes < _CLASSES:
        return False
    return float((compared.predictions.argmin(-1) == own).mean()) >= _LOWEST


def _unexplained(inputs: Sequence[NDArray[Any]]) -> float:
    """Return the ratio to the bound of a first loss that such inputs, [rows, ...], do not explain.

    It is infinite for inputs of unusual size or unknown kind.
    """
    if all(map(are_tokens, inputs)):
        return _FAR_TOKENS
    sizes = [
        float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
        for values in inputs
        if values.dtype.kind == "f" and values.size
    ]
    return _FAR if sizes and max(sizes) <= _USUAL_INPUTS else math.inf


def _sum(loss: str, factor: float, mean: float) -> Symptom:
    return Symptom(
        tensor=f"losses/{loss}",
        statistic="loss",
        value=factor * mean,
        threshold=mean,
        confidence=_CONFIDENCE,
        seen=f"the loss is {factor:.3g} times the mean of its rows",
        cause="the loss is summed over the batch instead of averaged: gradients and steps are "
        "larger by this factor",
        remedy=f'set reduction="mean", or multiply the learning rate by 1/{factor:.3g}',
        evidence={"factor": factor, "mean_of_rows": mean},
    )
