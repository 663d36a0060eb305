"""Rule: a model of several layers is linear, since no activation is between them."""

from __future__ import annotations

from vinedresser.rules.advice import listed
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.need import Need
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord


class MissingActivation(SymptomRule):
    """No activation is between the layers of a model, which is therefore linear.

    The composition of linear layers is a linear layer: the graph of the first backward pass
    (PyTorch), or the layers of a `keras.Sequential`, tell whether anything else than weights, sums,
    means, batch norm and dropout is between them (`RunRecord.linear`). Fires in a training that
    learns less than it should, and warns at the end of one whose outcome is unknown, but whose
    predictions are behind those of ridge regression or five nearest neighbours. Matrices of low
    rank, such as adapters and linear autoencoders, do not count, nor does a single layer. Source:
    Goodfellow et al., "Deep Learning", 6.1.

    Args:
        patience: number of consecutive checks, at steps with a loss.
    """

    fault = "missing_activation"
    stage = "model"
    # A linear model that has found its best weights moves no more.
    consequences = ("outcome", "no_signal", "corrupt_labels", "learning_rate_too_low")
    position = 150
    inapplicable = NETWORKS_ONLY

    def __init__(self, patience: int = 5) -> None:
        super().__init__(patience)
        self.needs = (Need("losses"),)
        self._linear: list[str] = []

    def on_record(self, info: RunRecord) -> None:
        """Read the weights of a linear model, which the first backward pass tells."""
        self._linear = info.linear

    def detect(self, step: Step) -> Symptom | None:  # noqa: ARG002 (known from the record)
        """See `SymptomRule.detect`."""
        if not self._linear:
            return None
        return Symptom(
            tensor=self._linear[0],
            statistic="weights",
            value=len(self._linear),
            threshold=1,
            confidence=0.95,
            seen=f"the model multiplies its inputs by {len(self._linear)} weights one after "
            f"another, and no activation is between them: {listed(self._linear)}",
            cause="without activations, all these layers can do no more than a single linear layer",
            remedy="add an activation, such as relu, after each layer but the last",
            evidence={"linear": self._linear},
        )

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`."""
        found = super().at_end()
        if found is not None or not self._patience.exhausted or not self._behind():
            return found
        return self._finding(Verdict("open"), self.without_stop)

    def _behind(self) -> bool:
        """Return whether the predictions are behind those of simple models for the same rows."""
        outcome: Outcome = self.outcome
        pairs = [
            (series.gain(), outcome.baseline.gain(loss))
            for loss, series in outcome.fit.of("train").items()
        ]
        known = [(gain, wanted) for gain, wanted in pairs if gain and wanted is not None]
        return bool(known) and all(gain.most < wanted for gain, wanted in known)
