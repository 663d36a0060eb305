"""Access to the tensors of the framework under Keras."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import keras

from vinedresser.capture.keras_.backends.operations import Operations
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.capture.shield import Shield
from vinedresser.errors import ConfigError

__all__ = ["Backend", "backend_in_use", "first_length"]


class Backend(Protocol):
    """Tensor operations of the framework under Keras.

    Attributes:
        versions: version of the framework by its name.
    """

    versions: dict[str, str]

    def copier(self, session: Session) -> TensorCopier:
        """Return the session's copier of the framework's tensors."""

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor or array, dense or sparse."""

    def dense(self, value: Any) -> Any:
        """Convert a sparse tensor to a dense one; return any other value unchanged.

        Raises:
            TypeError: The tensor is ragged.
        """

    def read(self, variable: Any) -> Any:
        """Return the current value of a variable; a symbolic tensor during tracing."""

    def snapshot(self, variable: Any) -> Any:
        """Return the value of a variable, detached and unaffected by later assignments."""

    def tracing(self) -> bool:
        """Return whether the running code is being traced for compilation."""

    def differentiating(self) -> bool:
        """Return whether gradients of the running code may be taken."""

    def operations(self, shield: Shield) -> Operations | None:
        """Return the operations of the running code; None if they cannot be known.

        Args:
            shield: guards the callbacks.
        """


def backend_in_use() -> Backend:
    """Return the backend that Keras was imported with.

    Raises:
        ConfigError: The backend is not supported.
        ImportError: The backend's package is not installed.
    """
    name = keras.backend.backend()
    if name == "tensorflow":
        from vinedresser.capture.keras_.backends.tensorflow_backend import TensorFlowBackend

        return TensorFlowBackend()
    if name == "torch":
        from vinedresser.capture.keras_.backends.torch_backend import TorchBackend

        return TorchBackend()
    raise ConfigError(
        f"the {name} backend of Keras is not supported; set KERAS_BACKEND=tensorflow or "
        "KERAS_BACKEND=torch before keras is imported"
    )


def first_length(values: Iterable[Any]) -> int | None:
    """Return the length of the first tensor with a known length; None if there is none.

    Args:
        values: tensors of any shape and dtype.
    """
    shapes = (value.shape for value in values)
    return next((shape[0] for shape in shapes if len(shape) and shape[0] is not None), None)
