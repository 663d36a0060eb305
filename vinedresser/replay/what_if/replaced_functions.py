"""Other functions in the place of those that a step calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.frameworks.torch_.modes import EachFunction
from vinedresser.replay.what_if.functions import ACTIVATIONS, DETACHING, LOSSES
from vinedresser.replay.what_if.module_calls import during_calls

__all__ = ["Loss", "replaced_activations", "replaced_loss", "without_cuts"]

Loss = Callable[[Callable[..., Tensor], Tensor, Tensor, dict[str, Any]], Tensor]
"""Returns a loss from the function, outputs, targets and keyword arguments of the present one."""


@contextmanager
def replaced_activations(
    model: nn.Module,
    places: Mapping[int, tuple[str, Callable[[Tensor], Tensor]]],
    outputs: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[None]:
    """Replace activations.

    Args:
        model: the model, of whose calls each is counted anew.
        places: name and replacement of activations by their place among those of a call.
        outputs: changes the outputs of the model, if given.
    """
    # The first call may have begun.
    place = -1

    def begins(_: Any) -> None:
        nonlocal place
        place = -1

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal place
        name = ACTIVATIONS.get(func)
        if name is None:
            return func(*args, **kwargs)
        place += 1
        seen, other = places.get(place, ("", None))
        given = args[0] if args else kwargs.get("input")
        if other is None or seen != name or not isinstance(given, Tensor):
            return func(*args, **kwargs)
        return other(given)

    def changed(*called: Any) -> Any:
        output = called[-1]
        return outputs(output) if outputs is not None and isinstance(output, Tensor) else output

    handle = model.register_forward_hook(changed)
    stance = torch.compiler.set_stance("force_eager")
    try:
        with stance, during_calls(model, begins, lambda _: None), EachFunction(call):
            yield
    finally:
        handle.remove()


@contextmanager
def replaced_loss(loss: Loss) -> Iterator[None]:
    """Replace the losses of torch.

    Args:
        loss: computes them.
    """

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in LOSSES and len(args) == 2 and args[0].requires_grad:
            return loss(func, args[0], args[1], kwargs)
        return func(*args, **kwargs)

    with torch.compiler.set_stance("force_eager"), EachFunction(call):
        yield


@contextmanager
def without_cuts(model: nn.Module) -> Iterator[None]:
    """Let gradients pass where the model detaches values."""
    # The first call may have begun.
    inside = True

    def begins(_: Any) -> None:
        nonlocal inside
        inside = True

    def ends(_: Any) -> None:
        nonlocal inside
        inside = False

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in DETACHING and inside and torch.is_grad_enabled():
            return args[0]
        return func(*args, **kwargs)

    stance = torch.compiler.set_stance("force_eager")
    with stance, during_calls(model, begins, ends), EachFunction(call):
        yield
