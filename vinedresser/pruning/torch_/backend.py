"""Pruning of PyTorch models behind the interface that all frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.torch_.measuring import losses_of, measure
from vinedresser.pruning.torch_.prunable import TorchPrunable
from vinedresser.pruning.torch_.surgery import removed
from vinedresser.pruning.torch_.timing import forward_timer
from vinedresser.pruning.torch_.weights import read_weights, write_weights

__all__ = ["TorchBackend"]


class TorchBackend:
    """The `vinedresser.pruning.backend.Backend` of PyTorch."""

    def prunable(self, model: Any, example: Any) -> Prunable[Any]:
        """See `Backend.prunable`."""
        return TorchPrunable(model, example)

    def removed(self, model: Any, plan: Plan) -> Any:
        """See `Backend.removed`."""
        return removed(model, plan)

    def measure(
        self,
        model: Any,
        losses: Losses,
        groups: Iterable[Group],
        measurements: Iterable[Measurement],
    ) -> Measured:
        """See `Backend.measure`."""
        return measure(model, losses, [*groups], [*measurements])

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """See `Backend.losses_of`."""
        return losses_of(model, losses)

    def forward_timer(self, model: Any, example: Any) -> Callable[[], float]:
        """See `Backend.forward_timer`."""
        return forward_timer(model, example)

    def write_weights(self, model: Any, path: Path) -> None:
        """See `Backend.write_weights`."""
        write_weights(model, path)

    def read_weights(self, model: Any, path: Path) -> None:
        """See `Backend.read_weights`."""
        read_weights(model, path)
