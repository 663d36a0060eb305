"""Gradients of a loss with the backend that Keras computes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import keras

__all__ = ["Differentiation", "differentiation"]

Result = TypeVar("Result")


class Differentiation(Protocol):
    """How one backend differentiates."""

    def recorded(self, compute: Callable[[], Result]) -> Result:
        """Call a function, so that what it computes can be differentiated."""

    def tracks(self, tensor: Any) -> bool:
        """Return whether a tensor is a value, of which gradients can be computed."""

    def gradients(self, loss: Any, sources: Sequence[Any]) -> list[Any]:
        """Return the gradients of what was recorded last, and forget it.

        Args:
            loss: a scalar tensor.
            sources: tensors and variables.

        Returns:
            A tensor for each source, of its shape; None if the loss does not depend on it.
        """


@contextmanager
def differentiation(variables: Sequence[Any]) -> Iterator[Differentiation]:
    """Make gradients by variables, frozen or not, and by all that depends on them.

    Args:
        variables: parameters of a model, of floating-point dtypes; they are as before in the end.
    """
    if keras.backend.backend() == "tensorflow":
        yield _Tapes(variables)
        return
    before = [(one, one.requires_grad) for one in (variable.value for variable in variables)]
    try:
        for one, _ in before:
            one.requires_grad_(True)
        yield _Autograd()
    finally:
        for one, required in before:
            one.requires_grad_(required)


class _Tapes:
    """A new tape of TensorFlow for each recording."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables
        self._tape: Any = None

    def recorded(self, compute: Callable[[], Result]) -> Result:
        """See `Differentiation.recorded`."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as self._tape:
            for variable in self._variables:
                self._tape.watch(variable.value)
            return compute()

    def tracks(self, tensor: Any) -> bool:
        """See `Differentiation.tracks`."""
        import tensorflow as tf

        # A function that TensorFlow traces computes with symbols.
        return isinstance(tensor, tf.Tensor) and tf.executing_eagerly()

    def gradients(self, loss: Any, sources: Sequence[Any]) -> list[Any]:
        """See `Differentiation.gradients`."""
        import tensorflow as tf

        found = self._tape.gradient(loss, [_plain(source) for source in sources])
        self._tape = None
        # The gradient of an embedding has its rows and their numbers.
        return [None if one is None else tf.convert_to_tensor(one) for one in found]


class _Autograd:
    """PyTorch, which records always."""

    def recorded(self, compute: Callable[[], Result]) -> Result:
        """See `Differentiation.recorded`."""
        import torch

        with torch.enable_grad():
            return compute()

    def tracks(self, tensor: Any) -> bool:
        """See `Differentiation.tracks`."""
        return bool(getattr(tensor, "requires_grad", False))

    def gradients(self, loss: Any, sources: Sequence[Any]) -> list[Any]:
        """See `Differentiation.gradients`."""
        import torch

        if not self.tracks(loss):
            return [None] * len(sources)
        plain = [_plain(source) for source in sources]
        return list(torch.autograd.grad(loss, plain, allow_unused=True))


def _plain(source: Any) -> Any:
    return source.value if isinstance(source, keras.Variable) else source
