"""Observing the activation and attention functions that a model calls."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode, handle_torch_function

from vinedresser.capture.torch_.forward.attention import ATTENTION
from vinedresser.capture.torch_.modules import ACTIVATIONS
from vinedresser.frameworks.torch_.passing import is_passing, passed_on

__all__ = ["FunctionCalls", "functions_can_be_seen"]


def _spellings() -> Iterable[tuple[Callable[..., Any], str]]:
    """Yield all functions and methods of torch for activations, in place or not, and their name."""
    for name in dict.fromkeys(ACTIVATIONS.values()):
        for owner in (torch, functional, torch.special, torch.Tensor):
            for spelled in (name, f"{name}_"):
                if hasattr(owner, spelled):
                    yield getattr(owner, spelled), name
    yield torch.special.expit, "sigmoid"
    for function in ATTENTION:
        yield function, function.__name__


# The name of each observed function.
_LOOKED_AT = MappingProxyType(dict(_spellings()))

_Before = Callable[[Callable[..., Any], str, tuple[Any, ...], dict[str, Any]], str | None]
_After = Callable[[str, Any], None]


class FunctionCalls(TorchFunctionMode):
    """Observes the calls of some functions on this thread.

    The functions compute the same results. Torch passes all of its functions through the mode,
    which costs about two microseconds per call.

    Args:
        before: called with the function, its name, its args and kwargs; returns the name of the
            call, or None to ignore it.
        after: called with the name of the call and the function's return value.
        functions: the observed functions, with their names; None: those for activations and
            attention.

    Attributes:
        compiling: torch.compile had to compile meanwhile, so the mode was left.
    """

    def __init__(
        self,
        before: _Before,
        after: _After,
        functions: Mapping[Callable[..., Any], str] | None = None,
    ) -> None:
        super().__init__()
        self.compiling = False
        self._named = _LOOKED_AT if functions is None else functions
        self._before = before
        self._after = after

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function, and observe it if it is one of those that are observed."""
        kwargs = kwargs or {}
        name = self._named.get(func)
        if name is None:
            return passed_on(func, args, kwargs)
        call = self._before(func, name, args, kwargs)
        result = passed_on(func, args, kwargs)
        if call is not None:
            self._after(call, result)
        return result

    def begin(self) -> None:
        """Start to observe calls."""
        torch._C._push_on_torch_function_stack(self)
        if dynamo := sys.modules.get("torch._dynamo"):
            dynamo.callback_handler.start_callbacks.append(self._leave_before_compiling)

    def end(self) -> None:
        """Stop to observe calls, and remove the mode's frames from a pending error's traceback."""
        self._leave_stack()
        error = sys.exc_info()[1]
        if error is not None:
            _conceal(error.__traceback__)
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo and self._leave_before_compiling in dynamo.callback_handler.start_callbacks:
            dynamo.callback_handler.start_callbacks.remove(self._leave_before_compiling)

    def _leave_before_compiling(self, *_: Any) -> None:
        """Leave the mode before torch.compile would compile it into its code."""
        if self._leave_stack():
            self.compiling = True

    def _leave_stack(self) -> bool:
        """Remove this mode from the thread's stack; return whether it was there."""
        above: list[Any] = []
        found = False
        while torch._C._len_torch_function_stack() and not found:
            mode = torch._C._pop_torch_function_stack()
            found = mode is self
            if not found:
                above.append(mode)
        while above:
            torch._C._push_on_torch_function_stack(above.pop())
        return found


def _conceal(trace: TracebackType | None) -> None:
    """Remove the frames of `FunctionCalls` from a traceback."""
    ours = FunctionCalls.__torch_function__.__code__
    kept: list[TracebackType] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code is not ours:
            if not is_passing(code) and code is not passed_on.__code__:
                kept.append(trace)
        elif len(kept) > 2 and kept[-1].tb_frame.f_code is handle_torch_function.__code__:
            # A Python function dispatches itself to the mode and is called again.
            del kept[-2:]
        trace = trace.tb_next
    for entry, following in itertools.zip_longest(kept, kept[1:]):
        entry.tb_next = following


def functions_can_be_seen() -> bool:
    """Return whether compiled code tolerates an unknown function mode."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return True
    stance = dynamo.eval_frame._stance.stance
    return stance in ("default", "force_eager") and not dynamo.config.error_on_recompile
