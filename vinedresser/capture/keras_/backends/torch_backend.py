"""PyTorch under Keras."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import torch

from vinedresser.capture.keras_.backends.torch_copier import KerasTorchCopier
from vinedresser.capture.keras_.calls.interception import Place
from vinedresser.capture.keras_.steps.eager_runner import EagerRunner
from vinedresser.capture.keras_.steps.runner import Runner
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.session import Session

__all__ = ["TorchBackend"]


class TorchBackend:
    """See `vinedresser.capture.keras_.backends.backend.Backend`."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {"torch": str(torch.__version__)}

    def copier(self, session: Session) -> KerasTorchCopier:
        """See `Backend.copier`."""
        return session.copier(KerasTorchCopier)

    def is_tensor(self, value: Any) -> bool:
        """See `Backend.is_tensor`."""
        return isinstance(value, (torch.Tensor, np.ndarray))

    def dense(self, value: Any) -> Any:
        """See `Backend.dense`; the copier sees to it."""
        return value

    def read(self, variable: Any) -> Any:
        """See `Backend.read`."""
        return variable.value if isinstance(variable, keras.Variable) else variable

    def held(self, variable: Any) -> Any:
        """See `Backend.held`."""
        return variable.value.detach().clone()

    def tracing(self) -> bool:
        """See `Backend.tracing`."""
        return torch.compiler.is_compiling()

    def differentiating(self) -> bool:
        """See `Backend.differentiating`."""
        return torch.is_grad_enabled()

    @property
    def places(self) -> tuple[Place, ...]:
        """See `Backend.places`; there are none."""
        return ()

    def watch(self, watched: Watched) -> None:
        """See `Backend.watch`; such functions run line by line."""

    def leave(self, watched: Watched) -> None:
        """See `Backend.leave`."""

    def traced_call(self) -> None:
        """See `Backend.traced_call`; a trace must show no trace of us."""

    def traced_update(self, watched: Watched, optimizer: Any) -> None:
        """See `Backend.traced_update`."""

    def runner(self, watched: Watched) -> Runner:
        """See `Backend.runner`."""
        # What torch.compile has compiled shows nothing of itself.
        uncompiled = functools.partial(torch.compiler.set_stance, "force_eager")
        return EagerRunner(watched, uncompiled)
