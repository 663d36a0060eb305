"""What optimizers update, and the closures of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.optim.optimizer import Optimizer

__all__ = ["has_closure", "updated", "with_closure"]


def updated(optimizers: Iterable[Optimizer]) -> set[int]:
    """Return the ids of the parameters that some optimizers update."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(parameter) for group in groups for parameter in group["params"]}


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an optimizer's step has a closure; args[0] is the optimizer."""
    return kwargs.get("closure") is not None or (len(args) > 1 and callable(args[1]))


def with_closure(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wrapped: Callable[[Callable[[], Any]], Callable[[], Any]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an optimizer's step with another closure.

    Args:
        args: positional arguments of a step with a closure; args[0] is the optimizer.
        wrapped: returns the closure for the present one.
    """
    if kwargs.get("closure") is not None:
        return args, kwargs | {"closure": wrapped(kwargs["closure"])}
    return (args[0], wrapped(args[1]), *args[2:]), kwargs
