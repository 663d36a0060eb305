"""Rule: the training comes to less than simple models make of the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.losses.loss_diagnosis import LossDiagnosis
from vinedresser.rules.need import Need
from vinedresser.rules.signals.outcomes.outcome import Outcome, Verdict
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.rules.trees.ensemble import Ensemble
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["Underfitting"]

_EVERY = 5
# The verdict asks for two standard errors.
_CONFIDENCE = 0.95


class Underfitting(Rule):
    """The predictions fit much worse than they should, and there is no hope of better.

    The gain, the share of the error of guessing that the model removes, is surely below half of
    what ridge regression or five neighbours reach on rows that the training has seen, and will be
    so at the end of the run if it goes on as until now (`Outcome`). Without labels, or where simple
    models reach nothing themselves, the losses and metrics decide. It is the net below all rules
    that know a fault by its symptoms, so it leaves them the time to see theirs; at the end of the
    run it does not wait.

    Args:
        patience: looks in a row, five steps apart, at which it has to be so. Rules that look at
            weights and gradients every 20 steps have looked three times by then.
    """

    fault = "underfitting"
    silent_after_stop = True

    def __init__(self, patience: int = 13) -> None:
        if patience < 1:
            raise ConfigError(f"patience = {patience}: must be at least 1 look")
        self.patience = patience
        self.needs = (
            Need("losses"),
            # For the cause alone: does anything arrive at the weights, and do they move?
            Need("gradients", every=20, reductions=("l2",), required=False),
            Need("weights", every=20, reductions=("l2",), required=False),
        )
        self.outcome = Outcome()
        self._diagnosis = LossDiagnosis()
        self._poor_since: int | None = None
        self._looks = 0
        self._last: Step | None = None
        self._fired = False

    def begin(self, info: RunRecord) -> None:
        """Take note of the learning rate, and of what each boosted tree counts."""
        self._diagnosis.rate = LearningRate.among(info.parameters)
        self._diagnosis.shrinkage = Ensemble(info).shrinkage

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or step.mode != "train":
            return None
        self._diagnosis.add(step)
        self._last = step
        if step.step % _EVERY:
            return None
        verdict = self.outcome.verdict()
        if verdict.kind != "poor" or verdict.plateau:
            self._looks, self._poor_since = 0, None
            return None
        if self._poor_since is None:
            self._poor_since = step.step
        self._looks += 1
        return self._finding(step, verdict) if self._looks >= self.patience else None

    def finish(self) -> Finding | None:
        """Return what is found of a training that came to little."""
        verdict = self.outcome.final()
        if self._fired or self._last is None or verdict.kind != "poor":
            return None
        return self._finding(self._last, verdict)

    def _finding(self, step: Step, verdict: Verdict) -> Finding:
        self._fired = True
        fault, advice = self._diagnosis.standing()
        low = fault == "learning_rate_too_low"
        rate = self._diagnosis.rate
        tensor, statistic, value, threshold = self._shortfall()
        return self.found(
            step,
            since=step.step if self._poor_since is None else self._poor_since,
            tensor=tensor,
            statistic=statistic,
            value=value,
            threshold=threshold,
            confidence=_CONFIDENCE,
            seen=verdict.reason,
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"looks": self._looks},
            fault=fault if low else "underfitting",
            correction=rate.raised() if low and rate else {},
        )

    def _shortfall(self) -> tuple[str, str, float, float]:
        """Return a tensor, a statistic of it, its value, and what it should have been."""
        for loss, series in self.outcome.fit.of("train").items():
            gain, wanted = series.gain(), self.outcome.baseline.gain(loss)
            if gain is not None and wanted is not None:
                name = self.outcome.fit.batches.tensor("predictions", loss)
                return name, "gain", gain.value, wanted
        name, progress = next(iter(self.outcome.progress.losses.items()))
        now = progress.latest()
        return name, "loss", now.level if now else progress.first, progress.start()[0]
