"""Running the steps of a model, and returning the captured tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

from vinedresser.capture.keras_.observation.due_filter import due_filter
from vinedresser.capture.keras_.observation.interception import observing
from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.recording.recording import Recording

__all__ = ["Execution", "StepFunction", "StepResult", "StepRunner"]

# A train, test or predict function made by Keras; its argument is an iterator over batches.
StepFunction = Callable[[Any], Any]


class StepResult(NamedTuple):
    """Result of one step.

    Attributes:
        logs: return value of the step.
        tensors: captured tensors by full name that are not recorded yet; may contain more than is
            due.
        losses: full names of the captured losses.
        single: whether the step was exactly one batch; False if Keras may have run several at once.
    """

    logs: Any
    tensors: Mapping[str, Any] = MappingProxyType({})
    losses: frozenset[str] = frozenset()
    single: bool = False


class StepRunner:
    """Runs steps of a model eagerly: observes Keras's own function, and records at once.

    Args:
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
        """Run one step on the next batch of an iterator.

        Args:
            method: the model's method: "train_step", "test_step" or "predict_step".
            original: the function made by Keras; called if the step cannot be captured.
            iterator: an iterator passed by Keras, or an item of `batches`.
            recording: recording of the step, including this forward; None if nothing is due.
        """
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
        """Yield at most `limit` batches of an iterator, each as an argument for `run`."""
        for data in itertools.islice(iterator, limit):
            yield iter((data,))

    def reset(self, method: str) -> None:
        """Discard the functions made for a method, since the model was compiled again."""


class Execution:
    """Execution of a watched model's steps; as on PyTorch, the user's functions run eagerly.

    Args:
        runner: runs the steps of which tensors are captured.

    Attributes:
        patch_points: backend methods to intercept in addition to those of Keras.
    """

    patch_points: tuple[PatchPoint, ...] = ()

    def __init__(self, runner: StepRunner) -> None:
        self.runner = runner

    def watch(self) -> None:
        """Start looking for compiled functions of the user that train the model."""

    def unwatch(self) -> None:
        """Stop looking for them."""

    def on_traced_call(self) -> None:
        """Handle a call of the model in a function that is being traced."""

    def on_traced_update(self, optimizer: Any) -> None:
        """Handle an update of the model in a function that is being traced."""
