"""The setup of a training in the run's record: losses, optimizers, untrained parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Self

from vinedresser.store.records import POLICY_GRADIENT

__all__ = [
    "TrainingSetup",
    "described_function",
    "described_optimizer",
    "function_setup",
    "plain_settings",
    "says_more",
    "typed",
]

_PLAIN = (bool, int, float, str, type(None))
# Packages whose losses are known by their names; any other may compute something else.
_FRAMEWORKS = ("torch", "keras", "tensorflow", "xgboost", "sklearn")


@dataclass(frozen=True)
class TrainingSetup:
    """The known setup of a training; see `RunRecord` for the structure.

    Attributes:
        losses: type and settings of each loss by name, such as ``CrossEntropyLoss``.
        optimizers: type, settings, number of elements and of tensors of each optimizer, by an
            identity that is unique to the optimizer.
        frozen: full names of parameters that do not require gradients.
        unoptimized: full names of trainable parameters that no optimizer updates.
        dropout: dropout rate of each module or layer that has one, by path.
        unpaired: names of losses whose labels are not those of the captured inputs.
        loaded: whether the weights, or the state of an optimizer, were loaded before the first
            step.
        fresh: full names of weights, frozen or of no optimizer, that still have the random initial
            values of their framework.
        activations: by name of a loss, the activation whose result it is given, if there is one.
        order: full names of the weights and biases of each model in the order of its forward.
        linear: full names of the weights of a model without an activation between them.
        breaches: see `RunRecord.breaches`.
    """

    losses: dict[str, dict[str, Any]] = field(default_factory=dict)
    optimizers: dict[int, dict[str, Any]] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)
    unoptimized: list[str] = field(default_factory=list)
    dropout: dict[str, float] = field(default_factory=dict)
    unpaired: list[str] = field(default_factory=list)
    loaded: bool = False
    fresh: list[str] = field(default_factory=list)
    activations: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    linear: list[str] = field(default_factory=list)
    breaches: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def joined(cls, setups: Iterable[TrainingSetup]) -> Self:
        """Return the combined setup of several models."""
        several = list(setups)
        joined = cls(loaded=any(one.loaded for one in several))
        for one in several:
            joined.losses.update(one.losses)
            joined.optimizers.update(one.optimizers)
            joined.frozen.extend(one.frozen)
            joined.unoptimized.extend(one.unoptimized)
            joined.fresh.extend(one.fresh)
            joined.dropout.update(one.dropout)
            joined.unpaired.extend(one.unpaired)
            joined.activations.update(one.activations)
            joined.order.extend(one.order)
            joined.linear.extend(one.linear)
            joined.breaches.update(one.breaches)
        for name, activation in joined.activations.items():
            if name in joined.losses:
                joined.losses[name] = {"activation": activation, **joined.losses[name]}
        return joined


def typed(kind: str, settings: Mapping[str, Any], defined: object = None) -> dict[str, Any]:
    """Return the record's entry of a loss.

    Args:
        kind: name of the class or function.
        settings: settings by name; see `plain_settings`.
        defined: the class or function; None if it is one of a framework.
    """
    root = str(getattr(defined, "__module__", None) or "").partition(".")[0]
    custom = {"custom": True} if root and root not in _FRAMEWORKS else {}
    return {"type": kind, "settings": plain_settings(settings), **custom}


def function_setup(
    function: str,
    *,
    negated: bool = False,
    activation: str = "",
    settings: Mapping[str, Any] | None = None,
    actions: bool = False,
) -> dict[str, Any]:
    """Return the record's entry of a loss that a function computes.

    Args:
        function: its name in `torch.nn.functional`, or `POLICY_GRADIENT`; "" if unknown.
        negated: whether the loss decreases where the function increases.
        activation: activation whose result the function is given; "" if none or unknown.
        settings: settings of the function by name, as far as known.
        actions: whether it is an error of the values of chosen actions.
    """
    setup = {"function": function, "negated": negated, "activation": activation}
    setup |= {"settings": dict(settings)} if settings else {}
    return setup | ({"actions": True} if actions else {})


def says_more(setup: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    """Return whether the entry of a loss has to replace the one that is known, or is the first.

    A sum with a policy gradient may first be known by another term, such as the error of a critic.

    Args:
        setup: entry made by `function_setup`.
        known: entry of the same loss; None if there is none.
    """
    if known is None:
        return True
    before: str = known.get("function", POLICY_GRADIENT)
    return before != POLICY_GRADIENT and setup["function"] == POLICY_GRADIENT


def described_optimizer(
    kind: str, settings: Mapping[str, Any], sizes: Iterable[int]
) -> dict[str, Any]:
    """Return the record's entry of an optimizer.

    Args:
        kind: name of the class.
        settings: settings by name; see `plain_settings`.
        sizes: number of elements of each tensor it updates.
    """
    elements = list(sizes)
    return {**typed(kind, settings), "parameters": sum(elements), "tensors": len(elements)}


def described_function(
    function: Callable[..., Any], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the record's entry of a loss function: its name, defaults and call settings.

    Args:
        function: the function, or a `functools.partial` of it.
        given: keyword arguments of a call.
    """
    bound: dict[str, Any] = {}
    while isinstance(function, partial):
        bound = {**function.keywords, **bound}
        function = function.func
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Some C functions have no signature.
        parameters = {}  # type: ignore[assignment]
    defaults = {key: one.default for key, one in parameters.items() if one.default is not one.empty}
    name = getattr(function, "__name__", type(function).__name__)
    # Parameters without a default are data, not settings.
    called = {key: one for key, one in (given or {}).items() if key in defaults or not parameters}
    return typed(str(name), defaults | bound | called, function)


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain settings: numbers, strings, None, and lists of them.

    A tensor or array of one element becomes a number; a larger one, such as class weights, True.
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
