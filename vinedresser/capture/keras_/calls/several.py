"""Looking on for several watched models at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from vinedresser.capture.keras_.calls.interception import Original, Sight

__all__ = ["Several"]


class Several:
    """A `Sight` of several others, for a step that trains several models.

    Args:
        sights: each sees everything.

    Attributes:
        updates: optimizers that were seen to update something, and the variables.
    """

    def __init__(self, sights: Sequence[Sight]) -> None:
        self.updates: list[tuple[Any, Any]] = []
        self._sights = sights

    def layer_called(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `Sight.layer_called`."""

        def through(sight: Sight, inner: Original, layer: Any, *args: Any, **kwargs: Any) -> Any:
            return sight.layer_called(inner, layer, args, kwargs)

        for sight in self._sights:
            original = functools.partial(through, sight, original)
        return original(layer, *args, **kwargs)

    def attended(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `Sight.attended`."""

        def through(sight: Sight, inner: Original, layer: Any, *args: Any, **kwargs: Any) -> Any:
            return sight.attended(inner, layer, args, kwargs)

        for sight in self._sights:
            original = functools.partial(through, sight, original)
        return original(layer, *args, **kwargs)

    def mean_updated(self, metric: Any, value: Any) -> None:
        """See `Sight.mean_updated`."""
        for sight in self._sights:
            sight.mean_updated(metric, value)

    def compared(self, owner: Any, labels: Any, predictions: Any) -> None:
        """See `Sight.compared`."""
        for sight in self._sights:
            sight.compared(owner, labels, predictions)

    def updating(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See `Sight.updating`."""
        self.updates.append((optimizer, variables))
        for sight in self._sights:
            sight.updating(optimizer, gradients, variables)

    def updated(self) -> None:
        """See `Sight.updated`."""
        for sight in self._sights:
            sight.updated()

    def see_loss(self, name: str, value: Any) -> None:
        """See `Sight.see_loss`; losses have the names of their own models already."""
        self._sights[0].see_loss(name, value)
