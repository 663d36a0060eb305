"""Observation of one step for several watched models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from vinedresser.capture.keras_.observation.observers import Original, StepObserver

__all__ = ["CombinedObserver"]


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

    def _nested(self, event: str, original: Original) -> Original:
        """Return a call of the original inside the event's handlers of all observers."""

        def through(handler: Any, inner: Original, layer: Any, *args: Any, **kwargs: Any) -> Any:
            return handler(inner, layer, args, kwargs)

        for observer in self._observers:
            original = functools.partial(through, getattr(observer, event), original)
        return original
