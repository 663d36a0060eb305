"""The interface between a hook and the model of a framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["Adapter", "LossTaker", "TabularAdapter", "Watchful"]


class Adapter(Protocol):
    """Ties a hook to one model of a framework."""

    @property
    def framework(self) -> str:
        """The framework's name, such as "torch"."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the framework and of what it runs on, by name."""

    def names(self) -> list[str]:
        """Return the names of all tensors that are known to be there to capture."""

    def modules(self) -> dict[str, ModuleInfo]:
        """Return what the modules or layers are, by path."""

    def path_of(self, module: Any) -> str | None:
        """Return the path of a module or layer object; None where it is none of the model's."""

    def checkpoint(self, directory: Path, step: int) -> None:
        """Save the model as it is now as ``step-<step>`` in a directory."""

    def detach(self) -> None:
        """Leave the model as it was found."""


@runtime_checkable
class LossTaker(Protocol):
    """An adapter that takes the values of loss functions that the training calls."""

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Take what a loss function has returned.

        Args:
            name: of the loss.
            value: what it returned.
            arguments: what it was called with.
        """


@runtime_checkable
class TabularAdapter(Protocol):
    """An adapter of a model of tables, whose columns and classes have names."""

    def features(self) -> list[str]:
        """Return the names of the input's features, in their order; [] as long as unknown."""

    def classes(self) -> list[str]:
        """Return the classes, in the order of their numbers; [] where there are none."""


@runtime_checkable
class Watchful(Protocol):
    """An adapter that looks now and then whether all is well."""

    def look(self) -> None:
        """Look, and report what is not; called about every second on the writer's thread."""
