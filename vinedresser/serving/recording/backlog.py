"""Described requests until they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vinedresser.columns.values import joined
from vinedresser.errors import CorruptData, RunRemoved, StoreError
from vinedresser.serving.recording.describing import Described
from vinedresser.serving.storing.encoding import (
    PROBABILITIES,
    encode_columns,
    request_step,
    tensor_of,
)
from vinedresser.serving.storing.request_log import RequestLog
from vinedresser.store.step_record import StepRecord


class Backlog:
    """Keeps described requests while the store refuses them, within a limit.

    Args:
        log: writes them.
        most_bytes: maximum size; the oldest are dropped.

    Attributes:
        lost: number of dropped requests.
    """

    def __init__(self, log: RequestLog, most_bytes: int) -> None:
        self.lost = 0
        self._log = log
        self._most_bytes = most_bytes
        self._steps: list[tuple[StepRecord, int]] = []

    def __len__(self) -> int:
        """Return the number of steps that are not committed."""
        return len(self._steps)

    def add(self, described: Sequence[Described]) -> None:
        """Add requests; those with the same columns become one step."""
        forms: dict[tuple[Any, ...], list[Described]] = {}
        for one in described:
            form = tuple((name, values.shape[1:]) for name, values in one.columns.items())
            forms.setdefault(form, []).append(one)
        for group in forms.values():
            counts = [len(one.batch.ids) for one in group]
            names = group[0].columns
            columns = {name: joined([one.columns[name] for one in group], counts) for name in names}
            tensors = encode_columns(columns)
            probabilities = np.concatenate([one.batch.probabilities for one in group])
            tensors[PROBABILITIES] = tensor_of(probabilities)
            ids = [identity for one in group for identity in one.batch.ids]
            times = np.concatenate([one.batch.times for one in group])
            self._steps.append((request_step(0, ids, times, tensors), len(ids)))

    def write(self) -> None:
        """Commit all steps.

        Raises:
            StoreError: the store refused; they are kept for the next attempt, within the limit.
                If the folder of the service was removed, they are dropped.
            CorruptData, MemoryError, TypeError, ValueError: a step is invalid; they are dropped.
        """
        if not self._steps:
            return
        first = self._log.next_step
        numbered = [
            replace(step, step=first + place) for place, (step, _) in enumerate(self._steps)
        ]
        try:
            self._log.append(numbered, sum(requests for _, requests in self._steps))
        except StoreError as error:
            self._shorten(0 if isinstance(error, RunRemoved) else self._most_bytes)
            raise
        except (CorruptData, MemoryError, TypeError, ValueError):
            # They would fail again.
            self._shorten(0)
            raise
        self._steps.clear()

    def _shorten(self, most_bytes: int) -> None:
        """Drop the oldest steps until the others have at most this size."""
        size = sum(step.nbytes() for step, _ in self._steps)
        while self._steps and size > most_bytes:
            step, requests = self._steps.pop(0)
            size -= step.nbytes()
            self.lost += requests
