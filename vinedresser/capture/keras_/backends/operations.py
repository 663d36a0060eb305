"""The operations from which tensors were computed."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

__all__ = ["Operation", "Operations"]


class Operation(NamedTuple):
    """An operation of TensorFlow.

    Attributes:
        kind: its type, such as "AddV2".
        inputs: tensors that it reads.
    """

    kind: str
    inputs: tuple[Any, ...]


class Operations(Protocol):
    """Operations of a graph that is being traced, or recorded while a loop runs line by line."""

    def begin(self) -> None:
        """Record the operations that this thread runs from now on."""

    def end(self) -> None:
        """Record no more."""

    def forget(self) -> None:
        """Record no more, and release the tensors."""

    def known(self, tensor: Any) -> bool:
        """Return whether the operations between the latest `begin` and a tensor are all known."""

    def of(self, tensor: Any) -> Operation | None:
        """Return the operation that computed a tensor; None if it is unknown or there is none."""

    def is_trained(self, tensor: Any) -> bool:
        """Return whether a tensor without a known operation may depend on trained variables."""

    def constant(self, tensor: Any) -> float | None:
        """Return the value of a scalar tensor if it is a constant of the program."""

    def are_probabilities(self, tensor: Any) -> bool:
        """Return whether values certainly are probabilities of classes, the last axis."""

    def varies(self, tensor: Any) -> bool:
        """Return whether a constant of a graph has different elements."""
