"""Rule: the learning rate is too high."""

from __future__ import annotations

import math
from statistics import NormalDist

from vinedresser.rules.bounds import require_above
from vinedresser.rules.losses.loss_diagnosis import too_long_steps
from vinedresser.rules.signals.losses.predicted_fall import PredictedFall
from vinedresser.rules.signals.outcomes.no_progress import LossTrajectory, NoProgress
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.rate_jump import LostByJump, RateJump
from vinedresser.rules.signals.parameters.update_ratios import USUAL_CHANGE, UpdateRatios, to_usual
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Ratio to the weights of a first step that replaces them (`longer_than` allows twice as much). Of
# 496 healthy trainings, those with longer first steps overshoot at most 0.8-fold, and those that
# overshoot more than threefold have first steps below 0.25.
_REPLACED = 0.5
# Momentum that adds up two hundred gradients.
_MOMENTUM = 0.995


class LearningRateTooHigh(SymptomRule):
    """The learning rate is too high: steps are so large that they undo what was learned.

    Let r be the median update-to-weight ratio (`UpdateRatios`), x the loss and p its decrease that
    the gradient predicts to first order (`PredictedFall`). Fires when r was above ``ratio`` or p /
    x above ``overshoot`` at any check, in a training that learns less than it should: one such step
    can move the weights to where the gradient vanishes. In such a training, it also fires when the
    median of r over ten checks or more is above ``lasting``, or the momentum of gradient descent
    (SGD) is at least 0.995, which adds up 200 gradients. Also fires, regardless of captured
    weights, when the loss rose far above its start, or decreased and rose again, without recovery
    (`NoProgress`); below ten times its start only as a warning if its targets are not captured.
    Warns before the outcome is known, at the third check, if the first step was longer than the
    weights themselves, of two layers or more, and p / x is above ``overshoot`` or the first losses
    after it, at least ten, are all above twice the one before. The fault is `loss_output_mismatch`
    if the loss is maximised (`PredictedFall.ascends`).
    Warns of a jump of the optimizer's learning rate to a new maximum after which the loss lost half
    of what it had gained (`RateJump`).

    Args:
        ratio: ratio of updates to weights, less what weight decay removes, above which a step is
            too large; those up to step 10 may be twice as large. First steps of trainings that
            learn reach 0.03, in some cases 0.7: the outcome decides.
        overshoot: predicted decrease divided by the loss. A convex loss allows 2 (Polyak); p is an
            upper bound of the decrease, and healthy trainings reach 4.6.
        patience: number of checks before the rule fires.
        lasting: the same ratio, as the median of the checks after the first. That of trainings that
            learn is at most 0.02.
    """

    fault = "learning_rate_too_high"
    consequences = ("outcome", "inside")
    position = 260
    predecessors = ("weight_update_ratio",)
    former_names = ("exploding_gradient", "oscillating_loss", "update_ratio")
    awaits_plateau = True
    early_patience = 3

    def __init__(
        self,
        ratio: float = 0.1,
        overshoot: float = 5.0,
        patience: int = 5,
        lasting: float = 0.025,
    ) -> None:
        require_above(0, ratio=ratio, overshoot=overshoot, lasting=lasting)
        super().__init__(patience)
        self.ratio = ratio
        self.overshoot = overshoot
        self.lasting = lasting
        self.updates = UpdateRatios(20)
        self.predicted = PredictedFall()
        self.progress = NoProgress(200, 0.1, 1.0)
        self.rate = LearningRateSignal()
        self.jump = RateJump()
        self.needs = self.updates.needs
        self._momentum = 0.0

    def begin(self, info: RunRecord) -> None:
        """Read the momentum of gradient descent."""
        given = [
            optimizer.get("settings", {})
            for optimizer in info.optimizers
            if optimizer.get("type") == "SGD"
        ]
        # Dampening scales each gradient by 1 less it.
        found = [one.get("momentum") for one in given if not one.get("dampening")]
        self._momentum = max((float(m) for m in found if isinstance(m, int | float)), default=0.0)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        found = super().watch(step) or self._of_trajectory(step, self.progress.trajectory())
        if found is None and self._warning is None and (lost := self.jump.lost()):
            found = self._warning = self._of_jump(step, lost)
        return found

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`."""
        return super().at_end() or self._diverged()

    def finish_early(self) -> Finding | None:
        """See `Rule.finish_early`: a diverged loss makes some scripts fail."""
        return None if self._done else self._once(self._diverged())

    def _diverged(self) -> Finding | None:
        last = self.progress.last
        if last is None:
            return None
        return self._of_trajectory(last, self.progress.trajectory(ended=True))

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: nothing is left of the initial weights, for no good."""
        greatest = self.updates.greatest
        # The loss of a single layer is usually convex: too long a first step does no lasting harm.
        if greatest is None or len(greatest.ratios) < 2:
            return False
        replaced = greatest.step == 0 and greatest.longer_than(_REPLACED)
        overshot = symptom.evidence.get("overshoot", 0.0) > self.overshoot
        harmful = overshot or self.progress.outcome.risen_at_once()
        return replaced and harmful and outcome.verdict().kind != "good"

    def detect(self, step: Step) -> Symptom | None:  # noqa: ARG002 (the signals have kept it)
        """See `SymptomRule.detect`."""
        greatest = self.updates.greatest
        at, overshoot = self.predicted.greatest_overshoot
        long = greatest is not None and greatest.longer_than(self.ratio)
        # What a strong decay does to the weights is not the gradient's step.
        decays = self.updates.decay > self.ratio / 2
        if not long and (decays or not overshoot > self.overshoot):
            return self._of_lasting(self.updates.lasting) or self._of_momentum()
        seen = []
        tensor, value, bound = "gradients", overshoot, self.overshoot
        factor = 10.0 ** math.floor(-math.log10(max(overshoot, 10.0)))
        if greatest is not None and long:
            tensor = max(greatest.ratios, key=greatest.ratios.__getitem__)
            value, bound = greatest.median, self.ratio
            factor = to_usual(value)
            seen.append(greatest.in_words)
        if overshoot > self.overshoot:
            seen.append(f"step {at} overshot the minimum {overshoot:.2g}×, by its gradient")
        if self.progress.outcome.risen_at_once():
            seen.append("the ten losses after the first one are above twice its value")
        return Symptom(
            tensor=tensor,
            statistic="l2",
            value=value,
            threshold=bound,
            confidence=1 - bound / value / 10,
            seen="; ".join(seen),
            cause="the learning rate is too high: steps are too large and undo what was learned",
            remedy=f"{self.rate.scaled(factor)}; warm up the learning rate, clip the gradient norm",
            evidence={
                "ratio": greatest.median if greatest else 0.0,
                "overshoot": overshoot,
                "learning_rates": self.rate.captured,
            },
            correction=self.rate.corrected(factor),
        )

    def _of_lasting(self, ratio: float) -> Symptom | None:
        """Return the symptom of steps that are long throughout."""
        if not ratio > self.lasting:
            return None
        factor = to_usual(ratio)
        return Symptom(
            tensor=max(self.updates.ratios, key=self.updates.ratios.__getitem__, default=""),
            statistic="l2",
            value=ratio,
            threshold=self.lasting,
            confidence=1 - self.lasting / ratio / 2,
            seen=f"updates are {ratio:.1e}× the size of the weights (median of the checks after "
            f"the first; {USUAL_CHANGE})",
            cause="the learning rate is too high: steps are too large and undo what was learned",
            remedy=f"{self.rate.scaled(factor)}; warm up the learning rate, clip the gradient norm",
            evidence={"ratio": ratio, "learning_rates": self.rate.captured},
            correction=self.rate.corrected(factor),
        )

    def _of_momentum(self) -> Symptom | None:
        """Return the symptom of a momentum that adds up hundreds of gradients."""
        if not _MOMENTUM <= self._momentum < 1:
            return None
        steps = 1 / (1 - self._momentum)
        return Symptom(
            tensor=next(iter(self.rate.captured), "optimizer_state/lr"),
            statistic="momentum",
            value=self._momentum,
            threshold=_MOMENTUM,
            confidence=0.8,
            seen=f"the optimizer has a momentum of {self._momentum:g}; 0.9 to 0.99 is normal",
            cause=f"the momentum adds up about {steps:.0f} gradients: steps are as long as with "
            f"{steps / 10:.0f} times the learning rate and a momentum of 0.9, and follow gradients "
            "of long ago",
            remedy="use a momentum of 0.9",
            evidence={"momentum": self._momentum},
        )

    def _of_jump(self, step: Step, lost: LostByJump) -> Finding:
        """Return the warning of a jump of the learning rate; the training may recover from it."""
        jump = lost.jump
        return self.found(
            step,
            since=jump.last,
            tensor=lost.name,
            statistic="loss",
            value=lost.now,
            threshold=(lost.start + lost.level) / 2,
            confidence=0.95,
            severity=self.without_stop,
            seen=f"{lost.name} had fallen from {lost.start:.4g} to {lost.level:.4g}; {jump}, and "
            f"at step {step.step} the loss is {lost.now:.4g}",
            cause=jump.advice.cause,
            remedy=jump.advice.remedy,
            evidence={"before": jump.before, "after": jump.after},
        )

    def _of_trajectory(self, step: Step, trajectory: LossTrajectory | None) -> Finding | None:
        """Return the finding from the loss alone, if any."""
        if trajectory is None or trajectory.kind == "standing":
            return None
        greatest = self.updates.greatest
        long = greatest if greatest is not None and greatest.longer_than(self.ratio) else None
        fault, advice, correction = too_long_steps(
            trajectory, self.rate, self.predicted, longest=long
        )
        size = abs(trajectory.start)
        error = math.hypot(trajectory.start_error, trajectory.stretch.error)
        margin = (trajectory.top - trajectory.start) / error if error else math.inf
        return self.found(
            step,
            since=trajectory.since,
            tensor=trajectory.name,
            statistic="loss",
            value=trajectory.top,
            threshold=trajectory.start + size / 2,
            confidence=NormalDist().cdf(margin),
            seen=f"{trajectory.name} {trajectory.seen}",
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={
                "start": trajectory.start,
                "level": trajectory.stretch.level,
                "rise": trajectory.rise,
                "learning_rates": self.rate.captured,
            },
            fault=fault,
            severity=None if trajectory.certain else self.without_stop,
            correction=correction,
        )
