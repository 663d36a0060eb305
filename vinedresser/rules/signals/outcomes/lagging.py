"""Whether simple models, or a constant, are certainly better than a model that was trained."""

from __future__ import annotations

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.moving_targets import MovingTargets
from vinedresser.rules.signals.outcomes.fit import FitSeries
from vinedresser.rules.signals.outcomes.gain_windows import windows_of
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import gain_in_words
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Minimum number of train steps.
_STEPS = 150
# Gain of simple models below which they find too little to blame a model that finds less.
_LEAST = 0.2
# Share of their gain. Of 140 healthy trainings, none was below 0.94 of it at its end.
_SHARE = 0.8
# Fall of a loss in the last half of the run, as a share, of one that still learns.
_STILL = 0.05
# Gain that is certainly worse than that of a constant; of 300 healthy trainings, none ended with a
# negative one. Minimum number of windows of samples, and largest growth of the targets, either way,
# of data: a model that makes its own moves them.
_WORSE, _WINDOWS, _GROWN = -0.05, 2, 1.25


class Lagging(Signal):
    """Whether a training ends behind simple models, or behind a constant.

    The simple models are fitted to some of its rows. To be behind them is less than what makes an
    outcome poor, and no reason to stop a training.
    """

    def __init__(self) -> None:
        self.outcome = Outcome()
        self.moving = MovingTargets()
        self._steps = 0
        self._total: int | None = None
        self._chooses = False

    def begin(self, info: RunRecord) -> None:
        """Read the expected number of steps."""
        self._total = info.total_steps

    def on_record(self, info: RunRecord) -> None:
        """See `Signal.on_record`."""
        self._chooses = info.chooses_actions

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank == 0 and step.mode == "train":
            self._steps = step.step + 1

    def behind_simple_models(self) -> str:
        """Return what was found at the end of a run in words; "" if nothing was.

        Each task is certainly below four fifths of the gain of simple models, at its end, on
        training rows and, if they are captured, in evaluations. A run that ended early tells
        nothing, nor does one whose loss weighs classes, since the gain counts them alike.
        """
        tasks = self.outcome.fit.of("train")
        early = self._steps < max(_STEPS, self._total or 0)
        if early or self._chooses or self.outcome.progress.adversaries:
            return ""
        if not all(self._lags(loss) for loss in tasks):
            return ""
        return ", ".join(self._in_words(loss, series) for loss, series in tasks.items())

    def behind_constant(self) -> str:
        """Return which numbers or labels are predicted worse than by a constant; "" if none are.

        One of several tasks is enough. It does not matter when the run ended, after 150 steps. Of
        functions that are only a part of the loss, only those that `Outcome` counts. Metrics that
        improve tell more.
        """
        if self._steps < _STEPS or self._chooses or self.outcome.progress.improving_metric():
            return ""
        return ", ".join(
            f"{loss}: {self._in_words(loss, series, simple=False)}"
            for loss, series in self.outcome.tasks().items()
            if self._is_worse(loss, series)
        )

    def _in_words(self, loss: str, series: FitSeries, *, simple: bool = True) -> str:
        gain = series.gain()
        return (
            gain_in_words(series, gain, self.outcome.simple(loss) if simple else None)
            if gain
            else ""
        )

    def _is_worse(self, loss: str, series: FitSeries) -> bool:
        """Return whether a constant is certainly better than the predictions of a loss."""
        # A discriminator may be worse while a generator wins, and accuracy while a class matters.
        numbers = series.task == "values"
        if series.task == "classes" or self.outcome.fit.identities.weighted(loss):
            return False
        if not numbers and self.outcome.progress.adversaries:
            return False
        if numbers and not 1 / _GROWN < self.moving.growth(loss) < _GROWN:
            return False
        windows, gain = windows_of(series)[-_WINDOWS:], series.gain()
        return (
            gain is not None
            and self.outcome.is_late(loss, gain)
            and gain.most < _WORSE
            and len(windows) == _WINDOWS
            and all(window.value < _WORSE for window in windows)
        )

    def _lags(self, loss: str) -> bool:
        """Return whether simple models are certainly better than the predictions of a loss."""
        fit, simple = self.outcome.fit, self.outcome.simple(loss) or 0.0
        progress = self.outcome.progress.losses.get(f"losses/{loss}")
        # A loss that still falls only needs more steps.
        if progress is None or progress.fallen(self._steps // 2) > _STILL:
            return False
        if simple < _LEAST or fit.identities.weighted(loss):
            return False
        known = [fit.of(mode)[loss] for mode in ("train", "eval") if loss in fit.of(mode)]
        return all(
            series.samples() >= series.window
            and (gain := series.gain()) is not None
            and self.outcome.is_late(loss, gain)
            and gain.most < _SHARE * simple
            for series in known
        )
