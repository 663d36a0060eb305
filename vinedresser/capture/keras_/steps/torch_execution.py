"""Execution on the PyTorch backend."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.steps.eager_runner import EagerRunner
from vinedresser.capture.keras_.steps.step_runner import StepRunner

__all__ = ["TorchExecution"]


class TorchExecution:
    """See `vinedresser.capture.keras_.execution.Execution`; the user's functions run eagerly.

    Args:
        watched: the model.
    """

    def __init__(self, watched: WatchedModel) -> None:
        self.patch_points: tuple[PatchPoint, ...] = ()
        # Calls inside code compiled by torch.compile cannot be observed.
        uncompiled = partial(torch.compiler.set_stance, "force_eager")
        self.runner: StepRunner = EagerRunner(watched, uncompiled)

    def watch(self) -> None:
        """See `Execution.watch`."""

    def unwatch(self) -> None:
        """See `Execution.unwatch`."""

    def on_traced_call(self) -> None:
        """See `Execution.on_traced_call`."""

    def on_traced_update(self, optimizer: Any) -> None:
        """See `Execution.on_traced_update`."""
