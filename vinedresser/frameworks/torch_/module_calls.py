"""Callbacks before and after the calls of modules, compiled or not."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

__all__ = [
    "CompiledCalls",
    "ModuleHook",
    "NextOutput",
    "Removable",
    "before_calls",
    "can_be_hooked",
]


class ModuleHook:
    """A hook on a user's module.

    Copies and pickles of modules do not have it (see `hide_hooks`). In those of a class with its
    own `__reduce__`, it is a no-op of the standard library, so that they can be read without
    vinedresser.

    Args:
        call: called with the module and the other arguments of the hook.
        owner: the only module for which it is called, which the hook does not keep alive; None:
            any module that has the hook, such as the replicas of data parallelism.
    """

    __slots__ = ("_call", "_owner")

    def __init__(self, call: Callable[..., Any], owner: nn.Module | None = None) -> None:
        self._call = call
        self._owner = None if owner is None else weakref.ref(owner)

    def __call__(self, module: nn.Module, *rest: Any) -> Any:
        """Call the hook."""
        if self._owner is None or module is self._owner():
            return self._call(module, *rest)
        return None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        # Accepts any arguments and returns None.
        return getattr, (nullcontext(), "__exit__")


# May return other positional and keyword arguments.
_Before = Callable[[nn.Module, Any, Any], tuple[Any, Any] | None]
_After = Callable[[nn.Module, Any, Any], object]


class Removable(Protocol):
    """A handle of something that can be removed."""

    def remove(self) -> None:
        """Remove it."""


class CompiledCalls:
    """Wraps the compiled code of a model on which ``model.compile()`` was called.

    Hooks of the model would be compiled with it. In a model that is not compiled, it replaces the
    compiled code and calls the model as torch does. Torch omits this attribute from copies and
    pickles.

    Args:
        before: called with the model, its args and kwargs before each call; returns others, or None
            for the same.
        after: called with the model, its args and its output after each call; the output is None
            after an error.

    Attributes:
        compiled: the compiled code; None if the model is not compiled.
    """

    def __init__(self, model: nn.Module, before: _Before, after: _After) -> None:
        self._model = model
        self.compiled: Any = model._compiled_call_impl
        self._call = self.compiled or model._call_impl
        self._before = before
        self._after = after
        model._compiled_call_impl = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        args, kwargs = self._before(self._model, args, kwargs) or (args, kwargs)
        output = None
        try:
            output = self._call(*args, **kwargs)
            return output
        finally:
            self._after(self._model, args, output)

    def remove(self) -> None:
        """Restore the compiled code."""
        if self._model._compiled_call_impl is self:
            self._model._compiled_call_impl = self.compiled


class NextOutput:
    """Calls a function with the output of the next call of a module.

    Args:
        call: called with the module, its positional arguments and its output; guarded.
    """

    def __init__(self, call: Callable[[nn.Module, Any, Any], object]) -> None:
        self._call = call
        self._handles: list[Removable] = []

    def wait(self, modules: Iterable[nn.Module]) -> None:
        """Wait for the next call of any of some modules."""
        self.remove()
        for module in modules:
            self._handles.append(module.register_forward_hook(ModuleHook(self._returned, module)))

    def remove(self) -> None:
        """Wait no longer."""
        while self._handles:
            self._handles.pop().remove()

    def _returned(self, module: nn.Module, args: Any, output: Any) -> None:
        self.remove()
        self._call(module, args, output)


def can_be_hooked(model: nn.Module) -> bool:
    """Return whether a hook on the calls of a model certainly leaves its computation as it is."""
    # Hooks would be compiled with it, or prevent torch's fast path.
    compiled = model._compiled_call_impl is not None or hasattr(model, "_orig_mod")
    return not compiled and not isinstance(
        model, (torch.jit.ScriptModule, nn.TransformerEncoderLayer)
    )


def before_calls(model: nn.Module, before: _Before, after: _After = lambda *_: None) -> Removable:
    """Call a function before each call of a model; return the handle that removes it.

    Args:
        model: the model, compiled or not.
        before: called with the model, its args and kwargs.
        after: called after each call of a model that is wrapped by `CompiledCalls`, since its own
            forward hooks run earlier, inside the compiled code.
    """
    if isinstance(model, torch.jit.ScriptModule):
        # It does not support hooks, so its calls are not seen.
        return RemovableHandle(OrderedDict())
    # A hook would prevent a transformer layer from using torch's fast path in evaluations.
    if model._compiled_call_impl is not None or isinstance(model, nn.TransformerEncoderLayer):
        return CompiledCalls(model, before, after)
    return model.register_forward_pre_hook(ModuleHook(before, model), with_kwargs=True)
