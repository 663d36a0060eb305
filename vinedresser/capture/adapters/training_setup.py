"""How a training is set up, for the run's record: losses, optimizers, what is not trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Protocol, Self, runtime_checkable

__all__ = [
    "SetUp",
    "TrainingSetup",
    "described_function",
    "described_optimizer",
    "plain_settings",
    "typed",
]

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class TrainingSetup:
    """What is known so far of how a training is set up; see `RunRecord` for the shapes.

    Attributes:
        losses: type and settings of each loss by its name, such as ``CrossEntropyLoss``.
        optimizers: type, settings, number of elements and of tensors of each, by a number that is
            that optimizer's alone.
        frozen: full names of parameters that are not to be trained.
        unoptimized: full names of those that are, but that no optimizer has.
        dropout: of each module or layer that drops something in training, the share, by its path.
    """

    losses: dict[str, dict[str, Any]] = field(default_factory=dict)
    optimizers: dict[int, dict[str, Any]] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)
    unoptimized: list[str] = field(default_factory=list)
    dropout: dict[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, setups: Iterable[TrainingSetup]) -> Self:
        """Return what is known of several models together."""
        losses: dict[str, dict[str, Any]] = {}
        optimizers: dict[int, dict[str, Any]] = {}
        frozen: list[str] = []
        unoptimized: list[str] = []
        dropout: dict[str, float] = {}
        for one in setups:
            losses |= one.losses
            optimizers |= one.optimizers
            frozen += one.frozen
            unoptimized += one.unoptimized
            dropout |= one.dropout
        return cls(losses, optimizers, frozen, unoptimized, dropout)


@runtime_checkable
class SetUp(Protocol):
    """An adapter of a training that is set up of parts with settings."""

    def setup(self) -> TrainingSetup:
        """Return what is known so far of how it is set up."""


def typed(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a loss for the record.

    Args:
        kind: name of the class or function.
        settings: what it is set to; only plain values are kept.
    """
    return {"type": kind, "settings": plain_settings(settings)}


def described_optimizer(
    kind: str, settings: Mapping[str, Any], sizes: Iterable[int]
) -> dict[str, Any]:
    """Return an optimizer for the record.

    Args:
        kind: name of the class.
        settings: what it is set to; only plain values are kept.
        sizes: elements of each tensor that it updates.
    """
    elements = list(sizes)
    return {**typed(kind, settings), "parameters": sum(elements), "tensors": len(elements)}


def described_function(
    function: Callable[..., Any], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a loss function for the record: its name, and the settings that it is called with.

    Args:
        function: perhaps a partial one.
        given: keyword arguments of a call.
    """
    bound: dict[str, Any] = {}
    while isinstance(function, partial):
        bound = {**function.keywords, **bound}
        function = function.func
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Some that are written in C do not say.
        parameters = {}  # type: ignore[assignment]
    defaults = {key: one.default for key, one in parameters.items() if one.default is not one.empty}
    name = getattr(function, "__name__", type(function).__name__)
    # What has no default is compared, not set.
    called = {key: one for key, one in (given or {}).items() if key in defaults or not parameters}
    return typed(str(name), defaults | bound | called)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings that are plain: numbers, texts, None and lists of them.

    Of a tensor or array of one element that is its number; of a larger one, which may be set or
    not (class weights), that it is: True.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if hasattr(value, "shape"):
            found[key] = float(value) if prod(value.shape) == 1 else True
        elif isinstance(value, (list, tuple)) and all(isinstance(one, _PLAIN) for one in value):
            found[key] = list(value)
        elif isinstance(value, _PLAIN):
            found[key] = value
    return found
