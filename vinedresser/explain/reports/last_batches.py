"""The last batches of which labels and predictions were captured, for figures about examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity
from vinedresser.rules.signals.outcomes.fit import FitSeries, Task
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.step_record import Mode

__all__ = ["Batch", "LastBatches", "last_batches"]

# From so many of the first batches a loss without a known name is told by its values.
_FIRST = 6
_LAST = 24


class Batch(NamedTuple):
    """Some rows of a batch.

    Attributes:
        step: of the training.
        compared: labels and predictions.
        inputs: of the model, by name; [rows, ...] each.
    """

    step: int
    compared: Compared
    inputs: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class LastBatches:
    """Batches of the end of a run.

    Attributes:
        loss: name of the loss that compared them.
        identity: what loss that is.
        task: what the labels are.
        mode: "eval" where the last evaluation was captured, else "train".
        batches: at least one.
        damaged: records that could not be read.
    """

    loss: str
    identity: LossIdentity
    task: Task
    mode: Mode
    batches: list[Batch]
    damaged: int

    @property
    def where(self) -> str:
        """When they were seen, in words."""
        first, last = self.batches[0].step, self.batches[-1].step
        rows = sum(len(batch.compared.labels) for batch in self.batches)
        if self.mode == "eval":
            return f"{rows:,} rows of the last evaluation, at step {last:,}"
        steps = f"step {last:,}" if first == last else f"steps {first:,} to {last:,}"
        return f"{rows:,} rows of training, {steps}"


def last_batches(run: Run) -> LastBatches | None:
    """Return the last batches of a run, rank 0, of the first loss that is known.

    At most 24 are read, and 6 of the first to know the loss.

    Args:
        run: the run.

    Returns:
        None where no labels with predictions were captured, or the loss is not known.
    """
    reading = _Reading(run)
    reading.look("train", _captured(run, "train")[:_FIRST])
    looks: tuple[tuple[Mode, int], ...] = (("eval", 1), ("train", _LAST))
    for mode, most in looks:
        steps = _captured(run, mode)
        found = reading.look(mode, steps[len(steps) - min(most, len(steps)) :])
        for loss in dict.fromkeys(batch.compared.loss for batch in found):
            identity = reading.identities.of(loss)
            batches = [batch for batch in found if batch.compared.loss == loss]
            task = None if identity is None else _task(identity, batches)
            if identity is not None and task is not None:
                return LastBatches(loss, identity, task, mode, batches, reading.damaged)
    return None


class _Reading:
    """Reads steps of a run; what is damaged is left out and counted."""

    def __init__(self, run: Run) -> None:
        self.identities = LossIdentities(every=1)
        self.identities.begin(run.info)
        self.damaged = 0
        self._run = run

    def look(self, mode: Mode, steps: NDArray[np.int64]) -> list[Batch]:
        found = []
        records = [record for step in steps.tolist() for record in self._run.at(step, mode)]
        for record in records[-_LAST:]:
            try:
                found += self._batches(record)
            except CorruptData:
                self.damaged += 1
        return found

    def _batches(self, record: Step) -> list[Batch]:
        seen = self.identities.batches
        seen.update(record)
        self.identities.update(record)
        return [Batch(record.step, compared, dict(seen.inputs)) for compared in seen.compared]


def _captured(run: Run, mode: Mode) -> NDArray[np.int64]:
    """Return the steps at which labels were captured in full."""
    names = run.tensor_names(collection="labels")
    found = [run.tensor(name).steps(mode) for name in names]
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def _task(identity: LossIdentity, batches: list[Batch]) -> Task | None:
    series = FitSeries(identity)
    for batch in batches:
        series.add(batch.step, batch.compared)
    return series.task
