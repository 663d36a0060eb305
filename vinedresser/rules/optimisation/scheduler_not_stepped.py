"""Rule: a learning-rate schedule does not match the training."""

from __future__ import annotations

import math
import re
from itertools import pairwise

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import Need
from vinedresser.rules.signals.outcomes.outcome import HORIZON, Outcome
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord
from vinedresser.store.step_record import Mode

_CAPTURED = r"^optimizer_state/(?:\w+\.)?scheduler_(?:steps|count)(?:\[\d+\])?$"
# Schedulers that take each other's place without any effect.
_MOST_REMADE = 3
# Share of a run with at least two epochs after which a scheduler that is stepped per epoch has been
# stepped.
_HALF = 0.5
# Share of the run for which the learning rate is 0.
_IDLE = 1 / 3
# Share of the greatest learning rate whose steps are lost to the rounding of float32.
_ROUNDED = 2.0**-24
# Share of a run by which such a rate leaves no doubt that the schedule is too fast.
_LOST = 1 / 2
# Share of the optimizer's own rate below which a warm-up that takes the whole run is far too long,
# and the fewest checks that show a steady rise.
_COLD, _RISES = 0.1, 8
# Gain, with two standard errors, of a training that has learned next to nothing.
_LITTLE = 0.1


class SchedulerNotStepped(SymptomRule):
    """A learning-rate scheduler is never stepped, far too often, made anew, or warms up too long.

    Fires when an optimizer has a scheduler that was never stepped, and its learning rate has not
    changed, in half of the run (at its end if its length is unknown). Many schedulers are stepped
    after each epoch: unless the training went on after an evaluation, this is an info, since the
    training may have had one epoch only. Also fires when the learning
    rate has dropped below ``decay`` of its maximum in the first ``share`` of the run, in a training
    that learns less than it should: an epoch schedule that is stepped at each batch. The drop may
    come later if the rate is so small that float32 rounds its steps away (2^-24 of its maximum) for
    more than a third of the run. If it is exactly 0 for that long, or that small for half of the
    run, that is enough, whatever the training has learned before. A rate that rises at every check
    of the run and ends below a tenth of the one that the optimizer was made with is reported at the
    end of a training that learned less than it should, or nothing: the warm-up is far longer than
    the run. Warns, too, of an optimizer that has had three schedulers more than at the first check
    while its rate is constant. The number of schedulers and of their steps is known for PyTorch;
    Keras schedules step automatically. A scheduler that watches a metric (`ReduceLROnPlateau`) may
    never need to act.

    Args:
        decay: share of the maximum learning rate below which nothing is learned any more.
        share: share of the run.
        patience: number of consecutive checks, and of checks before a scheduler counts as not
            stepped; two checks of a rate of 0 are enough.
    """

    modes = ("train", "eval")
    severity = "warning"
    fault = "scheduler_not_stepped"
    consequences = ("outcome", "learning_rate_too_low", "no_signal")
    position = 250
    inapplicable = Reasons(
        xgboost="the learning rate of a round is not captured",
        sklearn="the learning rate of a step is not captured",
    )
    # A rate of 0 leaves no doubt.
    early_patience = 2

    def __init__(self, decay: float = 1e-3, share: float = 0.1, patience: int = 5) -> None:
        require_between(0, 1, decay=decay, share=share)
        super().__init__(patience)
        self.decay = decay
        self.share = share
        self.rate = LearningRateSignal()
        self.needs = (
            Need("scheduler", every=20, regex=_CAPTURED, stop=400, required=False),
            Need("scheduler", every=100, regex=_CAPTURED, required=False),
            Need("losses", modes=("eval",), required=False),
        )
        self._mode: Mode | None = None
        # Whether the training went on after an evaluation.
        self._went_on = False
        self._unstepped: Step | None = None
        self._name = ""
        self._unstepped_checks = 0
        # Number of schedulers that the optimizer had at the first check.
        self._first_count = math.inf
        self._remade = 0
        self._remade_told = False
        self._decayed: tuple[int, float] | None = None
        # Step since which float32 rounds the steps of the rate away.
        self._rounded: int | None = None
        # Learning rate that the optimizer was made with; 0 if unknown.
        self._made_with = 0.0
        self._last: Step | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate that the optimizer was made with."""
        rates = [optimizer.get("settings", {}).get("lr") for optimizer in info.optimizers]
        alone = rates[0] if len(rates) == 1 else None
        self._made_with = float(alone) if isinstance(alone, int | float) else 0.0

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.mode == "eval":
            self._mode = "eval" if self._mode else None
            return None
        self._went_on |= self._mode == "eval"
        self._mode, self._last = "train", step
        counts = self._captured(step, "scheduler_count").values()
        self._first_count = min([self._first_count, *counts])
        self._remade = max([self._remade, *(int(count - self._first_count) for count in counts)])
        if self._remade >= _MOST_REMADE and not self._remade_told and self._constant():
            self._remade_told = True
            return self._made_anew(step)
        late = self.expected_steps is not None and step.step >= _HALF * self.expected_steps
        if self._counted(step) and late and self._went_on and self._stands():
            return self._never_stepped()
        return super().watch(step)

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`."""
        if self._stands():
            return self._never_stepped()
        return super().at_end() or self._still_cold()

    def _still_cold(self) -> Finding | None:
        """Return the finding of a run that ended long before the end of its warm-up."""
        rates = [rate for _, rate in self.rate.history]
        rises = len(rates) >= _RISES and all(0 <= one < other for one, other in pairwise(rates))
        if not rises or self._last is None or not rates[-1] < _COLD * self._made_with:
            return None
        verdict = self.outcome.final()
        if verdict.kind != "poor" and not self._learned_little():
            return None
        share = rates[-1] / self._made_with
        return self.found(
            self._last,
            since=0,
            tensor=next(iter(self.rate.captured)),
            statistic="lr",
            value=share,
            threshold=_COLD,
            confidence=0.95,
            seen=f"the learning rate has risen since the first step, and is {rates[-1]:.3g} at the "
            f"end, {share:.2g} of the {self._made_with:.3g} that the optimizer was made with"
            + (f"; {verdict.reason}" if verdict.reason else ""),
            cause="the warm-up is far longer than the run: its length was meant in steps and "
            "counted in something longer, or is that of another training",
            remedy="warm up for 1 % to 10 % of the steps of the run",
            evidence={"learning_rate": rates[-1], "made_with": self._made_with},
            fault="learning_rate_too_low",
        )

    def is_checked(self, step: Step) -> bool:
        """See `SymptomRule.is_checked`: steps with a captured learning rate."""
        return bool(self.rate.history) and self.rate.history[-1][0] == step.step

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:  # noqa: ARG002 (of any)
        """See `SymptomRule.warns_early`: no step changes anything any more."""
        length = self.expected_steps or self.rate.history[-1][0]
        lost = self._rounded is not None and self._rounded <= _LOST * length
        return symptom.value == 0 or lost

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        now, greatest = abs(self.rate.history[-1][1]), abs(self.rate.greatest)
        if not now < self.decay * greatest:
            self._decayed = self._rounded = None
            return None
        if self._decayed is None:
            self._decayed = (step.step, now)
        at, _ = self._decayed
        early = at < self.share * (self.expected_steps or HORIZON * step.step)
        rounded = now <= _ROUNDED * greatest
        idle = rounded and at < (1 - _IDLE) * (self.expected_steps or step.step)
        if not rounded:
            self._rounded = None
        elif self._rounded is None:
            self._rounded = step.step
        if not early and not idle:
            return None
        length = f"{self.expected_steps}" if self.expected_steps else f"at least {step.step + 1}"
        dropped = f"to less than {self.decay:g} of that by" if now else "to 0 by"
        return Symptom(
            tensor=next(iter(self.rate.captured)),
            statistic="lr",
            value=now / greatest,
            threshold=self.decay,
            confidence=0.9,
            seen=f"the learning rate dropped from {greatest:.3g} {dropped} step {at} of {length}"
            + (f", and is now {now:.3g}" if now else "; steps no longer change the weights"),
            cause="the schedule runs far ahead of the training: it is an epoch schedule that is "
            "stepped at each batch, or it is made for a much shorter run",
            remedy="call scheduler.step() once per epoch, or use a schedule as long as the run",
            evidence={"learning_rate": now, "greatest": greatest, "since": at},
            fault="learning_rate_too_low",
        )

    def _learned_little(self) -> bool:
        """Return whether what is known of a training shows that it has learned next to nothing."""
        known = [gain.most for gain in self.outcome.fit.gains("train")]
        return max(known) < _LITTLE if known else self.outcome.nothing_learned()

    def _counted(self, step: Step) -> bool:
        """Read how often schedulers were stepped; return whether that was captured."""
        taken = self._captured(step, "scheduler_steps")
        if not taken:
            return False
        self._name = min(taken, key=taken.__getitem__)
        self._unstepped = step if taken[self._name] == 0 else None
        self._unstepped_checks = self._unstepped_checks + 1 if self._unstepped else 0
        return True

    def _captured(self, step: Step, kind: str) -> dict[str, float]:
        """Return what is captured of the schedulers of each optimizer, by full name."""
        return {
            name: value
            for name, value in step.scalars.items()
            if kind in name and re.match(_CAPTURED, name)
        }

    def _stands(self) -> bool:
        """Return whether a scheduler has done nothing so far."""
        enough = self._unstepped is not None and self._unstepped_checks >= self.patience
        return enough and not self._remade_told and self._constant()

    def _constant(self) -> bool:
        return all(rate == self.rate.first for _, rate in self.rate.history)

    def _made_anew(self, step: Step) -> Finding:
        """Return the finding of schedulers that replace each other before they have an effect."""
        return self.found(
            step,
            since=0,
            tensor=next(iter(self.rate.captured), ""),
            statistic="schedulers",
            value=float(self._remade),
            threshold=float(_MOST_REMADE),
            confidence=0.9,
            seen=f"the optimizer has had {self._remade + int(self._first_count)} learning-rate "
            f"schedulers in {step.step} steps, and the learning rate is constant at "
            f"{self.rate.first:g}",
            cause="the scheduler is made anew in the training loop, such as in each epoch, so it "
            "never comes to lower the learning rate",
            remedy="create the scheduler once, before the loop",
            evidence={"learning_rate": self.rate.first, "schedulers": self._remade},
            severity="warning",
        )

    def _never_stepped(self) -> Finding:
        assert self._unstepped is not None, "called only if a scheduler was not stepped"
        return self.found(
            self._unstepped,
            since=0,
            tensor=self._name,
            statistic="steps",
            value=0.0,
            threshold=1.0,
            confidence=0.95,
            seen="the optimizer has a learning-rate scheduler that was never stepped in "
            f"{self._unstepped.step} steps; the learning rate is constant at {self.rate.first:g}",
            cause="scheduler.step() is missing from the training loop",
            remedy="call scheduler.step() after each epoch, or after each optimizer.step() for a "
            "schedule by steps",
            evidence={"learning_rate": self.rate.first, "went_on": self._went_on},
            severity="warning" if self._went_on else "info",
        )
