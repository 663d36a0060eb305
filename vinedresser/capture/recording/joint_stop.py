"""Stopping all ranks of a run after the same step."""

from __future__ import annotations

import math
import os
import time

from vinedresser.capture.recording.stopping import StopSignal
from vinedresser.objects import LocalStorage
from vinedresser.store.records import StopStepRecord, read_record, write_first


class JointStop:
    """The step after which all ranks of a launched run stop.

    A rank that stopped a step before another one would leave it waiting in a collective operation.
    So rank 0 decides at the end of a step that all stop after the next one, and writes that down
    before it begins the next one, which no rank can complete without it. The others look at the end
    of each step. If their steps have nothing in common, they stop with the next step that they end.

    Args:
        storage: the run directory, which all ranks share.
        signal: whether the training was asked to stop.
        patience: seconds after which a rank that was asked to stop no longer waits for rank 0,
            which may not train.
    """

    def __init__(
        self, storage: LocalStorage, rank: int, signal: StopSignal, patience: float
    ) -> None:
        self._storage = storage
        self._rank = rank
        self._signal = signal
        self._patience = patience
        # Called at each step: a path costs a tenth of a request to the storage.
        self._path = os.path.join(storage.location, StopStepRecord.KEY)
        self._last: int | None = None
        self._deadline = math.inf

    def due(self, steps: int, *, ended: bool) -> bool:
        """Return whether this rank is to stop now.

        Args:
            steps: number of finished train steps.
            ended: whether a train step has just ended, and not the batch of an evaluation.

        Raises:
            StoreError: the decision cannot be written or read; it is still the same.
        """
        if self._last is None:
            if self._rank:
                self._look()
            elif self._signal.due:
                self._last = steps + ended
                write_first(self._storage, StopStepRecord(self._last))
        if self._last is not None:
            return steps >= self._last
        return time.monotonic() >= self._deadline

    def _look(self) -> None:
        """Look for the decision of rank 0."""
        if os.path.exists(self._path):
            decided = read_record(self._storage, StopStepRecord)
            self._last = decided.steps if decided is not None else None
        elif self._signal.due and self._deadline == math.inf:
            self._deadline = time.monotonic() + self._patience
