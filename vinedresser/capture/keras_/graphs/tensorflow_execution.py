"""Execution on the TensorFlow backend: as graphs, or eagerly with ``run_eagerly``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vinedresser.capture.keras_.graphs.graph_runner import GraphRunner
from vinedresser.capture.keras_.graphs.user_functions import UserFunctions
from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.steps.eager_runner import EagerRunner
from vinedresser.capture.keras_.steps.step_runner import StepFunction, StepResult, StepRunner
from vinedresser.capture.recording.recording import Recording

__all__ = ["TensorFlowExecution"]

# One per process, like the patched methods.
_FUNCTIONS = UserFunctions()


class TensorFlowExecution:
    """See `vinedresser.capture.keras_.execution.Execution`.

    Args:
        watched: the model.
    """

    def __init__(self, watched: WatchedModel) -> None:
        self._watched = watched
        self.patch_points: tuple[PatchPoint, ...] = (_FUNCTIONS.patch_point,)
        self.runner: StepRunner = _TensorFlowRunner(watched)

    def watch(self) -> None:
        """See `Execution.watch`."""
        _FUNCTIONS.watch(self._watched)

    def unwatch(self) -> None:
        """See `Execution.unwatch`."""
        _FUNCTIONS.unwatch(self._watched)

    def on_traced_call(self) -> None:
        """See `Execution.on_traced_call`."""
        _FUNCTIONS.on_traced_call()

    def on_traced_update(self, optimizer: Any) -> None:
        """See `Execution.on_traced_update`."""
        _FUNCTIONS.on_traced_update(self._watched, optimizer)


class _TensorFlowRunner:
    """A `StepRunner` that asks the model before each step whether it runs eagerly."""

    def __init__(self, watched: WatchedModel) -> None:
        self._model = watched.model
        self._eager = EagerRunner(watched)
        self._graph = GraphRunner(watched)

    @property
    def _runner(self) -> StepRunner:
        return self._eager if self._model.run_eagerly else self._graph

    def run(
        self, method: str, original: StepFunction, iterator: Any, recording: Recording | None
    ) -> StepResult:
        """See `StepRunner.run`."""
        return self._runner.run(method, original, iterator, recording)

    def batches(self, iterator: Any, limit: int) -> Iterator[Any]:
        """See `StepRunner.batches`."""
        return self._runner.batches(iterator, limit)

    def reset(self, method: str) -> None:
        """See `StepRunner.reset`."""
        self._graph.reset(method)
