"""Rule: last activation, loss, output width and labels contradict each other."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.losses.class_numbers import ClassNumbers
from vinedresser.rules.losses.label_values import LabelSigns
from vinedresser.rules.losses.mismatch import Given, Mismatch, output_form
from vinedresser.rules.losses.mismatches import CHECKS
from vinedresser.rules.losses.shares import divergence_of_shares, is_divergence
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity, agreeing
from vinedresser.rules.signals.losses.loss_signs import LossSigns
from vinedresser.rules.signals.outcomes.baseline import Baseline
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.store.finding import HOPELESS, Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Models that list their parts in call order.
_ORDERED = frozenset({"Sequential", "Functional"})
# PyTorch losses that broadcast [N, 1] against [N]; others raise, and Keras corrects the shapes.
_BROADCAST = frozenset({"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"})
# Their functions. What a function or an expression compared is recorded in its original shapes.
_BROADCAST_FUNCTIONS = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
# Modules that may stand between the last weights and the outputs.
_WITHOUT_WEIGHTS = frozenset(
    {"Activation", "Flatten", "LogSoftmax", "ReLU", "Reshape", "Sigmoid", "Softmax", "Tanh"}
)
_SURE, _LIKELY = 0.99, 0.8
# Steps by which outputs that do not fit their loss are seen.
_SEEN = 100
_UNKNOWN = LossIdentity("", "", "mean", by_name=False)


class _Sighting(NamedTuple):
    """A mismatch, and the first and last step at which it was seen.

    Attributes:
        rows: number of rows in these checks.
    """

    first: int
    step: Step
    loss: str
    mismatch: Mismatch
    checks: int
    rows: int = 0


class LossOutputMismatch(OnceRule):
    """The model's outputs do not match what its loss takes.

    The rule compares the loss (its type, or its first values if it is a plain function), the
    outputs and labels it receives, and the model's last activation. Always wrong, and reported
    after ``patience`` checks, or at the end of a training that has fewer: softmax, sigmoid, tanh or
    relu before a loss that takes logits; softmax over one unit, or a cross-entropy between classes
    of one; raw outputs where probabilities or log-probabilities are expected; fewer outputs than
    classes; labels other than 0 and 1 in a binary cross-entropy, 0
    and 1 in a loss that takes -1 and 1, and negative ones in a loss of counts (`LabelSigns`);
    [N, 1] broadcast against [N]; an activation that keeps a tenth of the targets' variance out of
    reach; a relu before an error of the labels 0 and 1; dropout behind the last weights; gradient
    ascent. Reported only if the outcome is poor (`Outcome`): what looks like a relu before a loss
    that takes logits, rows of probabilities that do not sum to one (of a sigmoid before a
    cross-entropy between classes otherwise a hint at the end), a squared or absolute error of a
    softmax. A squared or absolute error of class numbers (`ClassNumbers`) is a warning.

    With the default severity, the finding is "stop" if nothing can be learned or the outcome is
    poor, and "warning" otherwise: such networks learn, but less than they could.

    Sources: UMLAUT (CHI 2021), NeuraLint (TOSEM 2022), and the lower bound of a cross-entropy of
    probabilities: ln(1 + (K - 1)/e) for K classes.

    Args:
        patience: number of consecutive checks, at every fifth train step.
        order: correlation of the distance of classes with the difference of their numbers, below
            which the numbers are no quantities.
    """

    fault = "loss_output_mismatch"
    stage = "loss"
    # A loss without much of a gradient leaves the weights to their decay. What the last activation
    # keeps out of reach seems too large for the outputs. Where nothing is learned, the labels seem
    # not to belong to the inputs.
    consequences = (
        "outcome",
        "inside",
        "learning_rate_too_high",
        "corrupt_labels",
        "learning_rate_too_low",
        "loss_scale",
        "over_regularisation",
        "unbounded_loss",
        "unnormalised_targets",
    )
    position = 130
    former_names = ("class_numbers",)

    @classmethod
    def can_explain(cls, cause: Finding, finding: Finding) -> bool:
        """See `Rule.can_explain`: without another fault, outputs do not fit from the first step.

        Labels are a symptom only where they are named because nothing else was found.
        """
        named = finding.fault == finding.rule == "corrupt_labels"
        return cause.since < max(_SEEN, finding.step + 1) and not named

    def __init__(self, patience: int = 3, order: float = 0.4) -> None:
        require_at_least(1, patience=patience)
        require_between(-1, 1, order=order)
        self.patience = patience
        self.order = order
        self.batches = Batches()
        self.identities = LossIdentities()
        self.signs = LossSigns()
        self.outcome = Outcome()
        self.baseline = Baseline()
        self._numbers = ClassNumbers(order)
        self._signs = LabelSigns()
        self._activation = ""
        self._dropout = ""
        # By loss: activation whose result it is given.
        self._given: dict[str, str] = {}
        self._broadcasting: frozenset[str] = frozenset()
        self._divergences: frozenset[str] = frozenset()
        self._first: dict[str, float] = {}
        self._seen: dict[str, _Sighting] = {}
        # Rows that were looked at, by loss.
        self._rows: Counter[str] = Counter()
        # Whether all rows have been ones from the first step on.
        self._ones: bool | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the last activation and the losses that broadcast."""
        modules = list(info.modules.values())
        roots = [words for words in modules if words[2:] == ["model"]]
        if len(roots) == 1 and roots[0][0] in _ORDERED:
            # Keras lists the parts of layers, such as cells, behind all layers.
            layers = [words for path, words in info.modules.items() if "." not in path]
            self._activation = (layers if info.framework == "keras" else modules)[-1][1]
        if len(roots) == 1 and roots[0][0] == "Sequential":
            self._dropout = _last_dropout(info)
        self._broadcasting = frozenset(
            loss
            for loss, setup in info.losses.items()
            if setup.get("function") in _BROADCAST_FUNCTIONS
            or (info.framework == "torch" and setup.get("type") in _BROADCAST)
        )
        self._divergences = frozenset(
            loss
            for loss, setup in info.losses.items()
            if info.framework == "torch" and is_divergence(setup)
        )
        self._given = {
            loss: str(setup["activation"])
            for loss, setup in info.losses.items()
            if setup.get("activation")
        }

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for compared in self.batches.compared:
            if finding := self._of_class_numbers(step, compared.loss):
                return finding
            mismatch = self._look(step, compared)
            if mismatch is None:
                mismatch = self._died(compared)
            self._note(step, compared, mismatch)
            if mismatch and (finding := self._confirmed(compared.loss)):
                return finding
        return self._of_label_signs(step) if step.mode == "train" else None

    def at_end(self) -> Finding | None:
        """Return the last mismatch of a training with a poor outcome, or with too few steps.

        What is wrong whatever the outcome and was seen in every check of a training that had fewer
        than `patience` of them, and in enough rows, counts, too. Of a few others there is a hint.
        """
        final = self.outcome.final()
        poor = final.reason if final.kind == "poor" else ""
        for one in self._seen.values():
            enough = one.checks >= self.patience
            everywhere = one.rows == self._rows[one.loss] >= one.mismatch.least_rows
            always = one.mismatch.sure and everywhere
            if always or (enough and (poor or one.mismatch.hint)):
                return self._finding(one, poor, few=not enough)
        return None

    def _of_label_signs(self, step: Step) -> Finding | None:
        """Return the finding for labels of losses, also of those of pairs without predictions."""
        # What Keras compares is known by the name of its loss only with its predictions.
        compared = {one.loss: one.labels for one in self.batches.compared}
        for loss, labels in (self.batches.labels | compared).items():
            mismatch = self._signs.detect(loss, self.identities.type_of(loss), labels)
            if mismatch is not None:
                sighting = _Sighting(0, step, loss, mismatch, 1)
                verdict = self.outcome.verdict()
                return self._finding(sighting, verdict.reason if verdict.kind == "poor" else "")
        return None

    def _of_class_numbers(self, step: Step, loss: str) -> Finding | None:
        rows = self.baseline.fitted_rows(loss)
        mismatch = self._numbers.detect(loss, self.identities.of(loss), rows)
        return mismatch and self._finding(_Sighting(0, step, loss, mismatch, 1), "")

    def _look(self, step: Step, compared: Compared) -> Mismatch | None:
        """Return the mismatch in a batch, if any."""
        form = output_form(compared.predictions)
        value = step.scalars.get(f"losses/{compared.loss}")
        if form is None or value is None:
            return None
        loss = compared.loss
        if loss in self._divergences:
            return divergence_of_shares(form)
        activation = self._given.get(loss, self._activation)
        if self._ones is None:
            # All ones later may come from a diverged sigmoid.
            self._ones = step.step == 0 or activation == "softmax"
        self._ones &= form.ones
        function = self.identities.function(loss)
        identity = function or self.identities.of(loss) or _UNKNOWN
        if function is None and _contradicted(identity, compared, value):
            return None
        given = Given(
            identity,
            compared,
            self.outcome.guessing.targets(compared),
            form._replace(ones=self._ones),
            activation,
            compared.loss in self._broadcasting,
            value,
            self.signs.negated or self._ascends(identity, loss, value),
            self._dropout,
        )
        return next((found for check in CHECKS if (found := check(given))), None)

    def _ascends(self, identity: LossIdentity, loss: str, value: float) -> bool:
        """Return whether an optimizer maximises a loss of known formula, which has risen."""
        first = self._first.setdefault(loss, value)
        return self.signs.maximizes and bool(identity.loss) and value > first

    def _died(self, compared: Compared) -> Mismatch | None:
        """Return the mismatch of a relu before the loss that has died: all its outputs are 0."""
        before = self._seen.get(compared.loss)
        if before is None or before.mismatch.kind != "relu" or compared.predictions.any():
            return None
        return before.mismatch

    def _note(self, step: Step, compared: Compared, mismatch: Mismatch | None) -> None:
        loss, rows = compared.loss, len(compared.labels)
        self._rows[loss] += rows
        if mismatch is None:
            self._seen.pop(loss, None)
            return
        before = self._seen.get(loss)
        if before is None or before.mismatch.kind != mismatch.kind:
            before = _Sighting(step.step, step, loss, mismatch, checks=0)
        checks, rows = before.checks + 1, before.rows + rows
        self._seen[loss] = _Sighting(before.first, step, loss, mismatch, checks, rows)

    def _confirmed(self, loss: str) -> Finding | None:
        """Return the finding once it is confirmed and counts."""
        seen = self._seen[loss]
        if seen.checks < self.patience:
            return None
        verdict = self.outcome.verdict()
        if seen.mismatch.sure or verdict.kind == "poor":
            return self._finding(seen, verdict.reason if verdict.kind == "poor" else "")
        return None

    def _finding(self, sighting: _Sighting, poor: str, *, few: bool = False) -> Finding:
        """Return the finding.

        Args:
            sighting: mismatch to report.
            poor: reason for a poor outcome; "" if it is not poor or unknown.
            few: it was seen in fewer checks than usual.
        """
        mismatch = sighting.mismatch
        harmless = not poor and not mismatch.hopeless
        severity = "info" if harmless and mismatch.hint else self.without_stop
        return self.found(
            sighting.step,
            since=sighting.first,
            tensor=self.batches.tensor(mismatch.of, sighting.loss),
            statistic=mismatch.statistic,
            value=mismatch.value,
            threshold=mismatch.threshold,
            confidence=_SURE if mismatch.sure and not few else _LIKELY,
            seen=f"{mismatch.seen}; {poor}" if poor else mismatch.seen,
            cause=mismatch.cause,
            remedy=mismatch.remedy,
            severity=severity if harmless else None,
            evidence={
                "kind": mismatch.kind,
                "looks": sighting.checks,
                HOPELESS: mismatch.hopeless,
            },
        )


def _last_dropout(info: RunRecord) -> str:
    """Return the path of the dropout behind the last weights of a sequential model; "" if none."""
    own = [(path, words[0]) for path, words in info.modules.items() if "." not in path]
    for path, kind in reversed(own):
        if path in info.dropout:
            return path
        if kind not in _WITHOUT_WEIGHTS:
            return ""
    return ""


def _contradicted(identity: LossIdentity, compared: Compared, value: float) -> bool:
    """Return whether the loss value contradicts the input that its name or earlier values imply.

    A custom class may have the name of a framework's loss and take logits where that one takes
    probabilities. Of outputs that hardly differ yet, both have the same value, which tells nothing
    about a loss without a name.
    """
    if not np.isfinite(value):
        return False
    formulas = [one[:2] for one in agreeing(compared, value, complete=True)]
    same_loss = {takes for loss, takes in formulas if loss == identity.loss}
    if len(same_loss) > 1 and not identity.by_name:
        return True
    return bool(same_loss) and identity.takes not in same_loss
