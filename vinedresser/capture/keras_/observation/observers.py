"""Observers of models and of single steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol

from vinedresser.capture.keras_.observation.comparisons import Comparison
from vinedresser.capture.keras_.observation.loop_losses import Differentiation

__all__ = [
    "CombinedObserver",
    "ModelObserver",
    "Original",
    "PatchPoint",
    "StepObserver",
    "UpdateGuard",
]

Original = Callable[..., Any]
# A class or module, the name of a method or function in it, and what returns its replacement.
PatchPoint = tuple[type | ModuleType, str, Callable[[Original], Original]]


class StepObserver(Protocol):
    """Observes one step or forward pass while it runs or is traced.

    Tensors are those of the backend, of any shape and dtype.
    """

    def call_layer(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer and return its output."""

    def compute_attention(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call an attention layer's ``_compute_attention`` and return its result."""

    def on_mean_update(self, metric: Any, value: Any) -> None:
        """Handle a value that is added to a Mean metric."""

    def on_loss_inputs(self, owner: Any, labels: Any, predictions: Any) -> None:
        """Handle the arguments of a loss computation.

        Args:
            owner: a model or its compiled loss.
            labels: the labels; a tensor, or a nesting by output.
            predictions: the model's predictions in the same structure.
        """

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """Handle the arguments of an optimizer's ``apply`` before it runs."""

    def after_update(self) -> None:
        """Handle the end of the optimizer's ``apply``."""

    def on_loss(self, name: str, value: Any) -> None:
        """Handle the value of a loss function of the user.

        Args:
            name: name of the loss with its model's prefix.
            value: return value of the loss function.
        """

    def on_comparison(self, comparison: Comparison) -> None:
        """Handle a call of any loss object of Keras, or of a loss function."""

    def on_differentiation(self, differentiation: Differentiation) -> None:
        """Handle a call of ``GradientTape.gradient``."""


class UpdateGuard(Protocol):
    """Looks at the gradients of a model before each update, whether it runs or is traced."""

    @property
    def took_loss(self) -> Callable[..., object]:
        """Function that notes a loss: name, value, arguments, and ``total`` for compute_loss."""

    def making(self) -> AbstractContextManager[None]:
        """Let Keras make the train function from a guarded ``train_step`` in this context."""

    def around(self, execute: Callable[[], Any], again: Callable[[Any], Any]) -> Any:
        """Run one execution of Keras's train function, or a function of the user.

        Args:
            again: runs it again on a batch; only for functions compiled by XLA.
        """

    def call(self, args: Any, kwargs: Any) -> Any:
        """Note a call of the model; return notes with ``add_output``, or None."""

    def updating(
        self, optimizer: Any, gradients: Any, variables: Any, update: Callable[[], Any]
    ) -> Any:
        """Look at gradients and make the optimizer's update.

        Args:
            gradients: the gradients passed to ``apply``.
            variables: their variables; None for all that the optimizer was built with.
            update: makes the update; its result is returned.
        """

    def remove(self) -> None:
        """Release the training's tensors."""


class ModelObserver(Protocol):
    """Observes a watched model outside of steps that a `StepObserver` observes.

    Attributes:
        loss: the watched loss object, or None.
        patch_points: methods of the backend to intercept in addition to those of Keras.
        guard: see `WatchedModel`.
    """

    model: Any
    loss: Any
    guard: UpdateGuard | None
    patch_points: tuple[PatchPoint, ...]

    def call_model(self, original: Original, args: Any, kwargs: Any) -> Any:
        """Call the model and return its output."""

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """Handle the arguments of any optimizer's ``apply`` before it runs."""

    def after_update(self, optimizer: Any) -> None:
        """Handle the end of an optimizer's ``apply``."""

    def on_loss(self, value: Any, arguments: tuple[Any, ...]) -> None:
        """Handle the value and the arguments of the watched loss object."""

    def on_comparison(self, comparison: Comparison) -> None:
        """Handle a call of any loss object of Keras, or of a loss function."""

    def on_differentiation(self, differentiation: Differentiation) -> None:
        """Handle a call of ``GradientTape.gradient``."""


class CombinedObserver:
    """A `StepObserver` that forwards each event to several observers.

    Args:
        observers: one observer for each watched model.

    Attributes:
        updates: arguments (optimizer, variables) of the observed calls of ``apply``.
    """

    def __init__(self, observers: Sequence[StepObserver]) -> None:
        self.updates: list[tuple[Any, Any]] = []
        self._observers = observers

    def call_layer(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `StepObserver.call_layer`."""
        return self._nested("call_layer", original)(layer, *args, **kwargs)

    def compute_attention(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `StepObserver.compute_attention`."""
        return self._nested("compute_attention", original)(layer, *args, **kwargs)

    def on_mean_update(self, metric: Any, value: Any) -> None:
        """See `StepObserver.on_mean_update`."""
        for observer in self._observers:
            observer.on_mean_update(metric, value)

    def on_loss_inputs(self, owner: Any, labels: Any, predictions: Any) -> None:
        """See `StepObserver.on_loss_inputs`."""
        for observer in self._observers:
            observer.on_loss_inputs(owner, labels, predictions)

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See `StepObserver.before_update`."""
        self.updates.append((optimizer, variables))
        for observer in self._observers:
            observer.before_update(optimizer, gradients, variables)

    def after_update(self) -> None:
        """See `StepObserver.after_update`."""
        for observer in self._observers:
            observer.after_update()

    def on_loss(self, name: str, value: Any) -> None:
        """See `StepObserver.on_loss`; the name already has its model's prefix."""
        self._observers[0].on_loss(name, value)

    def on_comparison(self, comparison: Comparison) -> None:
        """See `StepObserver.on_comparison`."""
        for observer in self._observers:
            observer.on_comparison(comparison)

    def on_differentiation(self, differentiation: Differentiation) -> None:
        """See `StepObserver.on_differentiation`."""
        for observer in self._observers:
            observer.on_differentiation(differentiation)

    def _nested(self, event: str, original: Original) -> Original:
        """Return a call of the original inside the event's handlers of all observers."""

        def through(handler: Any, inner: Original, layer: Any, *args: Any, **kwargs: Any) -> Any:
            return handler(inner, layer, args, kwargs)

        for observer in self._observers:
            original = functools.partial(through, getattr(observer, event), original)
        return original
