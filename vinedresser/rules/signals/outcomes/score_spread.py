"""How far apart the scores of classes are that a cross-entropy is given."""

from __future__ import annotations

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.store.reading.step import Step


class ScoreSpread(Signal):
    """The largest difference of two scores of one row so far, of each cross-entropy.

    Scores within a range r give no class of K a share above exp(r) / (exp(r) + K - 1): the loss
    cannot fall below ln(1 + (K - 1) exp(-r)), whichever class has the highest score.

    Attributes:
        fit: fit of predictions and labels.
        greatest: by name of the loss the largest difference in a train step.
    """

    def __init__(self) -> None:
        self.fit = Fit()
        self.greatest: dict[str, float] = {}

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.mode == "train":
            for compared in self.fit.batches.compared:
                self._spread(compared)

    def _spread(self, compared: Compared) -> None:
        identity = self.fit.identities.of(compared.loss)
        if identity is None or identity.loss != "cross_entropy" or compared.class_numbers is None:
            return
        spread = float((compared.predictions.max(-1) - compared.predictions.min(-1)).max())
        self.greatest[compared.loss] = max(self.greatest.get(compared.loss, 0.0), spread)
