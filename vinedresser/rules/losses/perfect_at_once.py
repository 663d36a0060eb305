"""Rule: the predictions are perfect too early."""

from __future__ import annotations

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.signals.losses.compared import Batches, Compared
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Number of consecutive correct rows.
_ROWS = 128


class PerfectAtOnce(OnceRule):
    """The predictions are perfect within the first steps.

    Fires when 128 consecutive rows of several classes are classified correctly within the first
    ``steps`` steps (`SingleLabel` covers a single class). Easy tasks do that too, so it is a hint.
    Does not apply to XGBoost, where a single round sees all rows.

    Source: UMLAUT (CHI 2021), which warns about an accuracy above 0.95 at any time.

    Args:
        steps: number of initial steps in which the predictions should not be perfect.
    """

    severity = "info"
    fault = "data_leakage"
    position = 120
    inapplicable = Reasons(xgboost="a single round has seen all rows")

    def __init__(self, steps: int = 30) -> None:
        require_at_least(0, steps=steps)
        self.steps = steps
        self.batches = Batches()
        self._right: dict[str, int] = {}
        self._labels: dict[str, bytes] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the framework."""
        self._done = info.framework == "xgboost"

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.step > self.steps:
            return None
        for compared in self.batches.compared:
            labels = compared.labels.tobytes()
            # A full-batch step shows the same rows each time.
            if self._labels.get(compared.loss) != labels:
                self._right[compared.loss] = _right(compared, self._right.get(compared.loss, 0))
            self._labels[compared.loss] = labels
        loss, rows = max(self._right.items(), key=lambda one: one[1], default=("", 0))
        if rows < _ROWS:
            return None
        return self.found(
            step,
            since=0,
            tensor=self.batches.tensor("predictions", loss),
            statistic="rows",
            value=rows,
            threshold=_ROWS,
            confidence=0.6,
            seen=f"after {step.step} steps, {rows} consecutive predictions are correct",
            cause="the inputs contain the labels, the rows were trained on before, or the task is "
            "very easy",
            remedy="look for an input that is derived from the label",
            evidence={"rows": rows},
        )


def _right(compared: Compared, before: int) -> int:
    """Return the number of consecutive rows with the right class, including previous ones.

    Args:
        compared: labels and predictions of a batch.
        before: number of consecutive rows before the batch.
    """
    numbers = compared.class_numbers
    if numbers is None:
        return 0
    perfect = bool((compared.predictions.argmax(-1) == numbers).all())
    return before + numbers.size if perfect and len(set(numbers.ravel().tolist())) > 1 else 0
