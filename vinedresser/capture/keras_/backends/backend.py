"""What the backends of Keras have in common, and which of them is in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import keras

from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.errors import ConfigError

if TYPE_CHECKING:
    from vinedresser.capture.keras_.calls.interception import Place
    from vinedresser.capture.keras_.steps.runner import Runner
    from vinedresser.capture.keras_.watched import Watched

__all__ = ["Backend", "backend_in_use", "first_length"]


class Backend(Protocol):
    """What capture has to know about the framework under Keras.

    Attributes:
        versions: of the framework, by its name.
    """

    versions: dict[str, str]

    def copier(self, session: Session) -> TensorCopier:
        """Return the session's copier of its tensors."""

    def is_tensor(self, value: Any) -> bool:
        """Say whether a value is something of numbers that can be kept, `dense` permitting."""

    def dense(self, value: Any) -> Any:
        """Return a sparse tensor as a dense one, and any other as it is.

        Raises:
            TypeError: its rows have different lengths.
        """

    def read(self, variable: Any) -> Any:
        """Return what a variable holds now, as a tensor; while tracing, at that place."""

    def held(self, variable: Any) -> Any:
        """Return what a variable holds now, as a tensor that stays so, without a gradient."""

    def tracing(self) -> bool:
        """Say whether what runs now is only being traced, to be compiled."""

    def differentiating(self) -> bool:
        """Say whether what runs now may be differentiated later."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Where else than in Keras to look in."""

    def watch(self, watched: Watched) -> None:
        """Look for a model in functions of the user's own."""

    def leave(self, watched: Watched) -> None:
        """Look for it no more."""

    def traced_call(self) -> None:
        """Note that a watched model is called in a function that is being traced."""

    def traced_update(self, watched: Watched, optimizer: Any) -> None:
        """Note that a model is updated there."""

    def runner(self, watched: Watched) -> Runner:
        """Return what does a model's steps where something of them is due."""


def backend_in_use() -> Backend:
    """Return the backend that Keras was imported with.

    Raises:
        ConfigError: it is one that capture does not know.
        ImportError: its package is not installed.
    """
    name = keras.backend.backend()
    if name == "tensorflow":
        from vinedresser.capture.keras_.backends.tensorflow_backend import TensorFlowBackend

        return TensorFlowBackend()
    if name == "torch":
        from vinedresser.capture.keras_.backends.torch_backend import TorchBackend

        return TorchBackend()
    raise ConfigError(
        f"Keras runs on its {name} backend, which cannot be watched; set KERAS_BACKEND=tensorflow "
        "or KERAS_BACKEND=torch before keras is imported"
    )


def first_length(values: Iterable[Any]) -> int | None:
    """Return the length of the first of some tensors that has one; None where none has."""
    shapes = (value.shape for value in values)
    return next((shape[0] for shape in shapes if len(shape) and shape[0] is not None), None)
