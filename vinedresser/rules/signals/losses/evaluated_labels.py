"""Evaluations whose labels are all equal, although those of the training are not."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.signals.losses.compared import BatchSignal
from vinedresser.store.collections.collection import FIRST_LABEL
from vinedresser.store.reading.step import Step

__all__ = ["EqualLabels", "EvaluatedLabels"]

# Minimum number of training labels, and maximum number of different ones that are told apart.
_TRAINED, _KINDS = 64, 1 << 10
# Maximum probability that all captured rows of an evaluation have one label by chance.
_CHANCE = 1e-6
# Numerator of the rule of three: the 95 % bound of a share that was never seen in n rows is 3/n.
_UNSEEN = 3
_BINARY = 2


class EqualLabels(NamedTuple):
    """The only label of the evaluations.

    Attributes:
        step: the last evaluation.
        label: the label as text.
        share: its share of the captured training labels.
        trained: number of captured training labels.
        evaluations: number of consecutive evaluations that have no other one.
    """

    step: Step
    loss: str
    label: str
    share: float
    trained: int
    evaluations: int


class EvaluatedLabels(BatchSignal):
    """Counts evaluations in which all labels are equal.

    The hook reports for an evaluation which share of its labels equals the first one, of all
    batches, since a sorted evaluation begins with many equal ones. Only single losses are judged.
    Rows of ids whose labels are of two kinds are not: recommenders are evaluated on pairs that
    exist, and trained on others, too.
    """

    needs = (Need("state", modes=("eval",), required=False),)

    def __init__(self) -> None:
        super().__init__()
        self._trained: Counter[bytes] = Counter()
        # Type and shape of a training label.
        self._form: tuple[Any, ...] = ()
        self._ids = False
        self._equal: tuple[Step, str, NDArray[np.generic]] | None = None
        self._evaluations = 0

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        compared = self.batches.paired
        if len(compared) != 1 or (step.mode == "eval" and self._evaluations < 0):
            return
        labels = compared[0].labels
        form = (labels.dtype, labels.shape[1:])
        if step.mode == "train":
            self._form = form
            if len(self._trained) < _KINDS:
                self._trained.update(row.tobytes() for row in labels)
            inputs = self.batches.inputs.values()
            self._ids |= bool(inputs) and all(values.dtype.kind in "iu" for values in inputs)
            return
        shares = [value for name, value in step.scalars_of("state").items() if _is_share(name)]
        before = None if self._equal is None else self._equal[2][0].tobytes()
        if shares == [1.0] and form == self._form and before in (None, labels[0].tobytes()):
            self._equal = (step, compared[0].loss, labels)
            self._evaluations += 1
        else:
            # Some evaluations have another label, as if each class was evaluated alone, or labels
            # that cannot be compared with those of the training.
            self._equal, self._evaluations = None, -1

    @property
    def equal(self) -> EqualLabels | None:
        """The only label of all evaluations; None if that is nothing unusual."""
        trained = self._trained.total()
        few = len(self._trained) <= (_BINARY if self._ids else 1)
        if self._equal is None or trained < _TRAINED or few:
            return None
        step, loss, labels = self._equal
        count = self._trained[labels[0].tobytes()]
        if min(1.0, (count + _UNSEEN) / trained) ** len(labels) > _CHANCE:
            return None
        label = labels[0]
        number = label.argmax() if label.size > 1 else label.item()
        return EqualLabels(step, loss, f"{number:g}", count / trained, trained, self._evaluations)


def _is_share(name: str) -> bool:
    return name.startswith(FIRST_LABEL)
