"""Whether simple models are certainly better than the model at the end of its training."""

from __future__ import annotations

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import gain_in_words
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["Lagging"]

_SURE = 2.0
# Minimum number of train steps.
_STEPS = 150
# Gain of simple models below which they find too little to blame a model that finds less.
_LEAST = 0.2
# Share of their gain. Of 140 healthy trainings, none was below 0.94 of it at its end.
_SHARE = 0.8


class Lagging(Signal):
    """Whether a training ends behind simple models that are fitted to some of its rows.

    That is less than what makes an outcome poor, and no reason to stop a training.
    """

    def __init__(self) -> None:
        self.outcome = Outcome()
        self._steps = 0
        self._total: int | None = None
        self._chooses = False

    def begin(self, info: RunRecord) -> None:
        """Read the expected number of steps."""
        self._total = info.total_steps
        self.know(info)

    def know(self, info: RunRecord) -> None:
        """See `Signal.know`."""
        self._chooses = info.chooses_actions

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank == 0 and step.mode == "train":
            self._steps = step.step + 1

    def in_words(self) -> str:
        """Return what was found at the end of a run; "" if nothing was.

        Each task is certainly below four fifths of the gain of simple models, at its end, on
        training rows and, if they are captured, in evaluations. A run that ended early tells
        nothing, nor does one whose loss weighs classes, since the gain counts them alike.
        """
        tasks = self.outcome.fit.of("train")
        whole = self._steps >= max(_STEPS, self._total or 0)
        if not whole or self._chooses or self.outcome.progress.adversaries:
            return ""
        if not all(self._lags(loss) for loss in tasks):
            return ""
        return ", ".join(
            gain_in_words(series, gain, self.outcome.simple(loss))
            for loss, series in tasks.items()
            if (gain := series.gain())
        )

    def _lags(self, loss: str) -> bool:
        """Return whether simple models are certainly better than the predictions of a loss."""
        fit, simple = self.outcome.fit, self.outcome.simple(loss) or 0.0
        if simple < _LEAST or fit.identities.weighted(loss):
            return False
        known = [fit.of(mode)[loss] for mode in ("train", "eval") if loss in fit.of(mode)]
        return all(
            series.looks() >= series.window
            and (gain := series.gain()) is not None
            and self.outcome.is_late(loss, gain)
            and gain.value + _SURE * gain.error < _SHARE * simple
            for series in known
        )
