"""Execution on the TensorFlow backend: as graphs, or eagerly with ``run_eagerly``."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.keras_.graphs.graph_runner import GraphRunner
from vinedresser.capture.keras_.graphs.loss_functions import LOSS_FUNCTIONS
from vinedresser.capture.keras_.graphs.tape import GRADIENT
from vinedresser.capture.keras_.graphs.user_functions import UserFunctions
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import Execution

# One per process, like the patched methods.
_FUNCTIONS = UserFunctions()


class TensorFlowExecution(Execution):
    """See `Execution`.

    Args:
        watched: the model.
    """

    patch_points = (_FUNCTIONS.patch_point, GRADIENT, *LOSS_FUNCTIONS)

    def __init__(self, watched: WatchedModel) -> None:
        super().__init__(GraphRunner(watched))
        self._watched = watched

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
