"""The interfaces between a hook and a framework's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from vinedresser.store.collections.modules import ModuleInfo

__all__ = [
    "Adapter",
    "Change",
    "Changed",
    "Guard",
    "LossTaker",
    "TabularAdapter",
    "Tunable",
    "Watchful",
]


class Adapter(Protocol):
    """Connects a hook to one model of a framework."""

    @property
    def framework(self) -> str:
        """Name of the framework, such as "torch"."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the framework and its backend, by name."""

    def names(self) -> list[str]:
        """Return the names of all tensors known to be available for capture."""

    def modules(self) -> dict[str, ModuleInfo]:
        """Return type and activation of each module or layer, by path."""

    def path_of(self, module: Any) -> str | None:
        """Return the path of a module or layer object, or None if it is not part of the model."""

    def checkpoint(self, directory: Path, step: int) -> None:
        """Save the model's current state as ``step-<step>`` in a directory."""

    def detach(self) -> None:
        """Remove everything that was attached to the model."""


@runtime_checkable
class LossTaker(Protocol):
    """An adapter that records the values of loss functions called by the training."""

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Record the value of a loss function.

        Args:
            name: name of the loss.
            value: the returned value, a number or a nesting of tensors.
            arguments: arguments of the call.
        """


@runtime_checkable
class TabularAdapter(Protocol):
    """An adapter of a model for tabular data, with named features and classes."""

    def features(self) -> list[str]:
        """Return the names of the input features in order; [] while unknown."""

    def classes(self) -> list[str]:
        """Return the class names in the order of their indices; [] if there are none."""


@runtime_checkable
class Watchful(Protocol):
    """An adapter that periodically checks for problems."""

    def look(self) -> None:
        """Report problems; called about once a second on the writer's thread."""


# Computes the new value from the old one.
Change = Callable[[float], float]

# `Shield.guard`.
Guard = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Changed(NamedTuple):
    """The change of a parameter: one number per parameter group of the optimizer.

    Attributes:
        old: previous values; [] if the parameter was not set.
        new: current values.
    """

    old: list[float]
    new: list[float]


class Tunable(Protocol):
    """A parameter that can be changed between two steps."""

    def change(self, change: Change) -> Changed:
        """Change the parameter in all groups, or in none if computing a new value fails."""
