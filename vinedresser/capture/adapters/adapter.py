"""The interfaces between a hook and a framework's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.recording import Recording
from vinedresser.store.collections.modules import ModuleInfo

__all__ = [
    "Adapter",
    "Change",
    "Changed",
    "GradientKeeper",
    "Guard",
    "InputTaker",
    "LossReader",
    "LossTaker",
    "Tunable",
]

# Computes the new value from the old one.
Change = Callable[[float], float]

# `Shield.guard`.
Guard = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Adapter(Protocol):
    """Connects a hook to one model of a framework.

    Attributes:
        framework: name of the framework, such as "torch".
        versions: versions of the framework and its backend, by name.
    """

    framework: str
    versions: dict[str, str]

    def names(self) -> list[str]:
        """Return the names of all tensors known to be available for capture."""
        return []

    def modules(self) -> dict[str, ModuleInfo]:
        """Return type and activation of each module or layer, by path; {} if there are none."""
        return {}

    def path_of(self, module: Any) -> str | None:  # noqa: ARG002
        """Return the path of a module or layer object, or None if it is not part of the model."""
        return None

    def features(self) -> list[str]:
        """Return the names of the input features in order; [] if unknown or if there are none."""
        return []

    def classes(self) -> list[str]:
        """Return the class names in the order of their indices; [] if there are none."""
        return []

    def setup(self) -> TrainingSetup:
        """Return the setup of the training known so far."""
        return TrainingSetup()

    def checkpoint(self, directory: Path, step: int) -> None:
        """Save the model's current state as ``step-<step>`` in a directory."""

    def detach(self) -> None:
        """Remove everything that was attached to the model."""

    def look(self) -> None:
        """Report problems; called about once a second on the writer's thread."""
        return


@runtime_checkable
class LossTaker(Protocol):
    """An adapter that records the values of loss functions called by the training."""

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """Record the value of a loss function.

        Args:
            value: the returned value, a number or a nesting of tensors.
        """


@runtime_checkable
class LossReader(Protocol):
    """An adapter that knows what loss functions of a script compute."""

    def custom_function(self, value: Any, arguments: tuple[Any, ...]) -> dict[str, Any] | None:
        """Return what a loss function of the script applies to its arguments, for the record.

        Returns:
            {} if it is unknown; None if this value does not tell.
        """


@runtime_checkable
class InputTaker(LossTaker, Protocol):
    """An adapter that also records what loss functions compared, apart from their values."""

    def inputs_due(self, *, several: bool = False) -> Recording | None:
        """Return the recording in which predictions or labels of a loss computed now are due.

        Args:
            several: look for a train step with several calls of the model instead, which do not
                continue each other.
        """

    def record_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool = True
    ) -> None:
        """Record what a loss function compared.

        Args:
            recording: recording in which it is due; ignored if it has ended.
            inputs: predictions and labels.
            paired: whether they are those of the first batch, whose inputs are captured.
        """


@runtime_checkable
class GradientKeeper(Protocol):
    """An adapter of models that a loop updates without an optimizer."""

    def keep_gradients(self) -> None:
        """Keep the gradients at the end of a backward pass: the loop may clear them in the step."""


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
