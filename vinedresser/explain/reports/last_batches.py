"""The last batches with captured labels and predictions, for charts of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.data.records import Origin
from vinedresser.errors import CorruptData
from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_identity import LossIdentities, LossIdentity
from vinedresser.rules.signals.origins import BatchOrigins, batch_origins
from vinedresser.rules.signals.outcomes.fit import FitSeries, Task
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.step_record import Mode

__all__ = ["Batch", "LastBatches", "last_batches"]

# First batches that identify a loss without a known name by its values.
_FIRST = 6
# Last batches that are read.
_LAST = 24


class Batch(NamedTuple):
    """Some rows of a batch.

    Attributes:
        step: training step.
        compared: labels and predictions.
        inputs: model inputs by name, [rows, ...] each, any dtype; {} if the labels are those of
            others (`RunRecord.unpaired`).
        origins: where the rows of the batch come from; None if it is not known.
    """

    step: int
    compared: Compared
    inputs: dict[str, NDArray[Any]]
    origins: BatchOrigins | None = None

    def origin(self, row: int) -> Origin | None:
        """Return the origin of a row; None if it is not known."""
        if self.origins is None:
            return None
        return self.origins.of_row(row, len(self.compared.labels))


@dataclass(frozen=True)
class LastBatches:
    """Batches from the end of a run.

    Attributes:
        loss: name of the loss.
        identity: formula of the loss.
        task: kind of the labels.
        mode: "eval" if the last evaluation was captured, else "train".
        batches: the batches, at least one.
        damaged: number of records that cannot be read.
    """

    loss: str
    identity: LossIdentity
    task: Task
    mode: Mode
    batches: list[Batch]
    damaged: int

    @property
    def where(self) -> str:
        """Origin of the rows as text."""
        first, last = self.batches[0].step, self.batches[-1].step
        rows = sum(len(batch.compared.labels) for batch in self.batches)
        if self.mode == "eval":
            return f"{rows:,} rows of the last evaluation, at step {last:,}"
        steps = f"step {last:,}" if first == last else f"steps {first:,} to {last:,}"
        return f"{rows:,} training rows, {steps}"


def last_batches(run: Run, *, at: int | None = None) -> LastBatches | None:
    """Return the last batches of rank 0 for the first known loss.

    Reads at most the last 24 batches, and the first 6 to identify the loss.

    Args:
        at: only the batches of this step; None: the last ones.

    Returns:
        None if labels and predictions were not captured or the loss is unknown.
    """
    reading = _Reading(run)
    reading.batches("train", _captured(run, "train")[:_FIRST])
    looks: tuple[tuple[Mode, int], ...] = (("eval", 1), ("train", _LAST))
    for mode, most in looks:
        steps = _captured(run, mode)
        steps = steps if at is None else steps[steps == at]
        found = reading.batches(mode, steps[len(steps) - min(most, len(steps)) :])
        for loss in dict.fromkeys(batch.compared.loss for batch in found):
            identity = reading.identities.of(loss)
            batches = [batch for batch in found if batch.compared.loss == loss]
            task = None if identity is None else _task(identity, batches)
            if identity is not None and task is not None:
                return LastBatches(loss, identity, task, mode, batches, reading.damaged)
    return None


class _Reading:
    """Reader of steps that leaves out and counts damaged records."""

    def __init__(self, run: Run) -> None:
        self.identities = LossIdentities(every=1)
        self.identities.begin(run.info)
        self.damaged = 0
        self._run = run

    def batches(self, mode: Mode, steps: NDArray[np.int64]) -> list[Batch]:
        """Return the last batches at these steps, int64 [N]."""
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
        found = []
        origins = batch_origins(record)
        for compared in seen.compared:
            unpaired = compared.loss in self._run.info.unpaired
            # Rows without the ignored labels are not those of the batch.
            known = None if unpaired or seen.ignores(compared.loss) else origins
            inputs = {} if unpaired else dict(seen.inputs)
            found.append(Batch(record.step, compared, inputs, known))
        return found


def _captured(run: Run, mode: Mode) -> NDArray[np.int64]:
    """Return the steps with labels captured in full, int64 [N]."""
    names = run.tensor_names(collection="labels")
    found = [run.tensor(name).steps(mode) for name in names]
    return np.unique(np.concatenate([np.empty(0, np.int64), *found]))


def _task(identity: LossIdentity, batches: list[Batch]) -> Task | None:
    series = FitSeries(identity)
    for batch in batches:
        series.add(batch.step, batch.compared)
    return series.task
