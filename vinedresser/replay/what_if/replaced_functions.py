"""Other functions in the place of those that a step calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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
    mode = _Activations(places)

    def changed(*called: Any) -> Any:
        output = called[-1]
        return outputs(output) if outputs is not None and isinstance(output, Tensor) else output

    handle = model.register_forward_hook(changed)
    stance = torch.compiler.set_stance("force_eager")
    try:
        with stance, during_calls(model, mode.begin, lambda _: None), mode:
            yield
    finally:
        handle.remove()


@contextmanager
def replaced_loss(loss: Loss) -> Iterator[None]:
    """Replace the losses of torch.

    Args:
        loss: computes them.
    """
    with torch.compiler.set_stance("force_eager"), _Losses(loss):
        yield


@contextmanager
def without_cuts(model: nn.Module) -> Iterator[None]:
    """Let gradients pass where the model detaches values.

    Args:
        model: the model.
    """
    mode = _Detached()
    stance = torch.compiler.set_stance("force_eager")
    with stance, during_calls(model, mode.begin, mode.end), mode:
        yield


class _Activations(TorchFunctionMode):
    def __init__(self, places: Mapping[int, tuple[str, Callable[[Tensor], Tensor]]]) -> None:
        super().__init__()
        self._places = places
        # The first call may have begun.
        self._place = -1

    def begin(self, _: Any) -> None:
        self._place = -1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = ACTIVATIONS.get(func)
        if name is None:
            return func(*args, **(kwargs or {}))
        self._place += 1
        seen, other = self._places.get(self._place, ("", None))
        given = args[0] if args else (kwargs or {}).get("input")
        if other is None or seen != name or not isinstance(given, Tensor):
            return func(*args, **(kwargs or {}))
        return other(given)


class _Losses(TorchFunctionMode):
    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self._loss = loss

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in LOSSES and len(args) == 2 and args[0].requires_grad:
            return self._loss(func, args[0], args[1], kwargs)
        return func(*args, **kwargs)


class _Detached(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        # The first call may have begun.
        self._inside = True

    def begin(self, _: Any) -> None:
        self._inside = True

    def end(self, _: Any) -> None:
        self._inside = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in DETACHING and self._inside and torch.is_grad_enabled():
            return args[0]
        return func(*args, **(kwargs or {}))
