"""Whether a training comes to what it should: what a symptom is held against before it counts.

A gradient may fade and units may die in a training that learns well; published detectors that do
not ask raise alarms on a third to two thirds of healthy trainings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.outcomes.baseline import Baseline
from vinedresser.rules.signals.outcomes.fit import Fit, FitSeries, Gain
from vinedresser.rules.signals.outcomes.learning_outcome import LearningOutcome

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["PLATEAU", "Outcome", "Verdict"]

_SURE = 2.0
# Of the gain of simple models: what is good, and what is poor.
_GOOD_SHARE = 0.8
_POOR_SHARE = 0.5
# A baseline that gains less says nothing.
_LEAST_BASELINE = 0.1
# Without a baseline: a gain that is good, and a fall of the loss that is.
_GOOD_GAIN = 0.25
_GOOD_FALL = 0.3
# Windows of looks before anything is said to be poor.
_FEWEST_WINDOWS = 3
# Train steps before anything is said to be poor, and the share of the run where that is known.
_PATIENCE = 150
_SHARE = 0.4
# The share of a run whose length is known, before which a loss that stands may stand on a plateau
# before learning (Barak et al., "Hidden progress in deep learning", NeurIPS 2022); sparse parities
# were seen to stand until 0.46.
PLATEAU = 0.5
# Of a run of unknown length: this many times as long as until now it is given.
_HORIZON = 4.0


class Verdict(NamedTuple):
    """What becomes of a training.

    Attributes:
        kind: "good", "poor" (it does not learn, or less than it should), or "open".
        reason: a clause with the figures, such as "accuracy 0.11 where guessing gives 0.10".
        plateau: it is poor in that the loss stands, and may yet come off its plateau: the run is
            not half over.
    """

    kind: Literal["good", "poor", "open"]
    reason: str = ""
    plateau: bool = False


class Outcome(Signal):
    """What becomes of a training, judged by its predictions, losses and metrics.

    By the predictions where labels were captured with them: the share of the error of guessing that
    is removed (`Fit`), held against simple models fitted to rows that the training has seen
    (`Baseline`). It is good at four fifths of theirs, and poor below half of theirs when, going on
    as in the last windows, it will still be so at the end of the run (of unknown length: at four
    times the steps until now). Without such a baseline, and without labels, the losses and metrics
    decide (`LearningOutcome`).
    """

    def __init__(self) -> None:
        self.fit = Fit()
        self.baseline = Baseline()
        self.progress = LearningOutcome(200, 0.1)
        self._step = 0
        self._total: int | None = None
        self._verdict: Verdict | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of how long the run is to be."""
        self._total = info.total_steps

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank == 0 and step.mode == "train":
            self._step = step.step
            self._verdict = None

    def verdict(self) -> Verdict:
        """Return what becomes of the training, as far as can be told now."""
        if self._verdict is None:
            self._verdict = self._judged(ended=False)
        return self._verdict

    def final(self) -> Verdict:
        """Return what became of the training, now that it is over."""
        return self._judged(ended=True)

    def _judged(self, *, ended: bool) -> Verdict:
        verdicts = [
            self._of_fit(loss, series, ended=ended) for loss, series in self.fit.of("train").items()
        ]
        found = [verdict for verdict in verdicts if verdict is not None]
        for kind in ("good", "open", "poor"):
            # One task that is learned is enough: there may be losses that only steer.
            for verdict in found:
                if verdict.kind == kind != "open":
                    return verdict
        losses = self._of_losses(ended=ended)
        if found and losses.kind == "good":
            # The loss falls, and the predictions have not become good: that is open.
            return Verdict("open")
        return losses

    def _of_losses(self, *, ended: bool) -> Verdict:
        progress = self.progress
        metric = progress.improving_metric()
        if metric:
            return Verdict("good", f"{metric} improves")
        if progress.learned(_GOOD_FALL):
            return Verdict("good", "the loss has fallen")
        if not progress.losses:
            return Verdict("open")
        if progress.nowhere(1.0):
            name, one = next(iter(progress.losses.items()))
            now = one.latest()
            level = now.level if now else one.first
            # One that was thrown up has been somewhere else.
            stands = not any(loss.thrown_up() for loss in progress.losses.values())
            early = not ended and self._step < PLATEAU * (self._total or 0)
            reason = f"{name} {level:.4g} from {one.start()[0]:.4g}"
            return Verdict("poor", reason, stands and early)
        return Verdict("open")

    def _of_fit(self, loss: str, series: FitSeries, *, ended: bool) -> Verdict | None:
        """Return the verdict by the predictions of one loss; None: they do not tell."""
        gain = series.gain()
        if gain is None:
            return None
        baseline = self.baseline.gain(loss)
        if baseline is None or baseline < _LEAST_BASELINE:
            good = gain.value - _SURE * gain.error > _GOOD_GAIN
            return Verdict("good", _words(series, gain, None)) if good else None
        words = _words(series, gain, baseline)
        if gain.value - gain.error > _GOOD_SHARE * baseline:
            return Verdict("good", words)
        poor = _POOR_SHARE * baseline
        windows = _windows(series)
        surely = gain.value + _SURE * gain.error < poor and len(windows) >= _FEWEST_WINDOWS
        if surely and (ended or self._without_hope(windows, poor)):
            return Verdict("poor", words)
        return Verdict("open", words)

    def _without_hope(self, windows: list[Gain], poor: float) -> bool:
        """Say whether a gain will be poor at the end too, if it goes on as in the last windows."""
        if self._step < max(_PATIENCE, _SHARE * (self._total or 0)):
            return False
        end = max(self._total or _HORIZON * self._step, self._step)
        return _projected(windows, end) < poor


def _words(series: FitSeries, gain: Gain, baseline: float | None) -> str:
    if series.task == "values":
        words = f"R2 {gain.score:.3g}"
        return words if baseline is None else f"{words} where simple models reach {baseline:.3g}"
    words = f"accuracy {gain.score:.3g} where guessing gives {gain.chance:.3g}"
    if baseline is None:
        return words
    return f"{words} and simple models reach {gain.chance + (1 - gain.chance) * baseline:.3g}"


def _windows(series: FitSeries) -> list[Gain]:
    """Return the gains of windows of looks that do not overlap, oldest first."""
    count = series.looks() // series.window
    gains = (series.gain(before=series.window * place) for place in range(count))
    return [gain for gain in gains if gain is not None][::-1]


def _projected(windows: list[Gain], end: float) -> float:
    """Return the gain that is to be hoped for at the end, if it goes on as in the last windows.

    A line through the last half of the windows (four at least), plus two standard errors of it.

    Args:
        windows: gains, oldest first.
        end: step at which the training ends.
    """
    recent = windows[-max(4, len(windows) // 2) :]
    gains = np.array([gain.value for gain in recent])
    steps = np.array([gain.step for gain in recent], np.float64)
    ahead = max(end - float(steps[-1]), 0.0)
    steps -= steps.mean()
    spread = float((steps**2).sum())
    slope = float((steps * gains).sum()) / spread
    residual = gains - gains.mean() - slope * steps
    error = math.sqrt(float((residual**2).sum()) / max(len(gains) - 2, 1) / spread)
    return float(gains[-1]) + max(slope + _SURE * error, 0.0) * ahead
