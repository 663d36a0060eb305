"""Being called before a model is, and after, compiled or not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vinedresser.capture.torch_.forward.module_hook import ModuleHook

__all__ = ["CompiledCalls", "Removable", "before_calls"]

_Before = Callable[[nn.Module, Any, Any], None]


class Removable(Protocol):
    """What was set and can be taken away."""

    def remove(self) -> None:
        """Take it away."""


class CompiledCalls:
    """Comes before the compiled code of a model on which ``model.compile()`` was called.

    The model's own hooks are compiled together with it. In a model that is not compiled it takes
    the place of such code, and calls the model as torch does. Torch leaves this attribute out of
    copies and pickles.

    Args:
        model: compiled.
        before: called with the model, its arguments and its keyword arguments.
        after: called at the end of each call.

    Attributes:
        compiled: the code that it comes before; None where the model is not compiled.
    """

    def __init__(self, model: nn.Module, before: _Before, after: Callable[[], object]) -> None:
        self._model = model
        self.compiled: Any = model._compiled_call_impl
        self._call = self.compiled or model._call_impl
        self._before = before
        self._after = after
        model._compiled_call_impl = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        self._before(self._model, args, kwargs)
        try:
            return self._call(*args, **kwargs)
        finally:
            self._after()

    def remove(self) -> None:
        """Take it away."""
        if self._model._compiled_call_impl is self:
            self._model._compiled_call_impl = self.compiled


def before_calls(model: nn.Module, before: _Before, after: Callable[[], object]) -> Removable:
    """Have a function called before each call of a model; return what takes it away.

    Args:
        model: perhaps compiled.
        before: called with the model, its arguments and its keyword arguments; returns nothing.
        after: called at the end of each call of a model on which ``model.compile()`` was called,
            or that takes no hooks; its own forward hooks run earlier, inside of what is compiled.
    """
    if isinstance(model, torch.jit.ScriptModule):
        # It takes no hooks, so its calls are not seen.
        return RemovableHandle(OrderedDict())
    # A transformer layer with a hook would not take torch's fast path in evaluations.
    if model._compiled_call_impl is not None or isinstance(model, nn.TransformerEncoderLayer):
        return CompiledCalls(model, before, after)
    return model.register_forward_pre_hook(ModuleHook(before, model), with_kwargs=True)
