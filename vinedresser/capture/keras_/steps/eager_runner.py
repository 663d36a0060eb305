"""Steps that run eagerly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.keras_.observation.due_filter import due_filter
from vinedresser.capture.keras_.observation.interception import observing
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.steps.step_runner import StepFunction, StepResult
from vinedresser.capture.recording.recording import Recording

__all__ = ["EagerRunner"]


class EagerRunner:
    """A `StepRunner` that observes Keras's own function and records tensors immediately.

    Args:
        watched: the model.
        uncompiled: returns a context in which compiled code runs uncompiled.
    """

    def __init__(
        self,
        watched: WatchedModel,
        uncompiled: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._writer = watched.writer
        self._collector = watched.collector
        self._uncompiled = uncompiled

    def run(
        self, method: str, original: StepFunction, iterator: Any, recording: Recording | None
    ) -> StepResult:
        """See `StepRunner.run`."""
        if recording is None:
            return StepResult(original(iterator))
        losses: set[str] = set()

        def emit(name: str, value: Any) -> None:
            if name.startswith("losses/"):
                losses.add(name)
            self._writer.write(recording, name, value)

        later = not recording.first_batch

        def is_due(name: str) -> bool:
            # Evaluated at each call: `recording.due` grows when a layer is built.
            return due_filter(method, recording.due, later=later)(name)

        with self._uncompiled(), observing(self._collector(is_due, emit)):
            logs = original(iterator)
        return StepResult(logs, losses=frozenset(losses))

    def batches(self, iterator: Any, limit: int) -> Iterator[Any]:
        """See `StepRunner.batches`."""
        for data in itertools.islice(iterator, limit):
            yield iter((data,))

    def reset(self, method: str) -> None:
        """See `StepRunner.reset`; an eager runner makes no functions."""
