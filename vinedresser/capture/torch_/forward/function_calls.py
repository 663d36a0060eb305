"""Seeing the functions that a model calls: activations, and attention."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable
from types import MappingProxyType, TracebackType
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode, handle_torch_function

from vinedresser.capture.torch_.forward.attention import ATTENTION

__all__ = ["FunctionCalls", "functions_can_be_seen"]

_NAMES = re.findall(
    r"\w+",
    "celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax logsigmoid "
    "mish prelu relu relu6 rrelu selu sigmoid silu softmax softmin softplus softshrink softsign "
    "tanh tanhshrink threshold",
)


def _spellings() -> Iterable[tuple[Callable[..., Any], str]]:
    """Yield all functions and methods by which torch spells the names, in place or not."""
    for name in _NAMES:
        for owner in (torch, functional, torch.special, torch.Tensor):
            for spelled in (name, f"{name}_"):
                if hasattr(owner, spelled):
                    yield getattr(owner, spelled), name
    yield torch.special.expit, "sigmoid"
    for function in ATTENTION:
        yield function, function.__name__


# What the functions are called that are looked at.
_LOOKED_AT = MappingProxyType(dict(_spellings()))

_Before = Callable[[Callable[..., Any], str, tuple[Any, ...], dict[str, Any]], str | None]
_After = Callable[[str, Any], None]


class FunctionCalls(TorchFunctionMode):
    """Sees the calls of activation and attention functions on this thread.

    The functions themselves run as if it were not there. Torch hands it each of its functions, for
    about two microseconds a call.

    Args:
        before: called with the function, its name and its arguments; returns what the call is
            called, or None where nothing more is to be known of it.
        after: called with that and what the function has returned.

    Attributes:
        compiling: torch.compile had something to compile meanwhile, and this has made way.
    """

    def __init__(self, before: _Before, after: _After) -> None:
        super().__init__()
        self.compiling = False
        self._before = before
        self._after = after

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function, and look at it if it is one of those."""
        kwargs = kwargs or {}
        name = _LOOKED_AT.get(func)
        if name is None:
            return func(*args, **kwargs)
        call = self._before(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if call is not None:
            self._after(call, result)
        return result

    def begin(self) -> None:
        """See calls from now on."""
        torch._C._push_on_torch_function_stack(self)
        if dynamo := sys.modules.get("torch._dynamo"):
            dynamo.callback_handler.start_callbacks.append(self._leave_before_compiling)

    def end(self) -> None:
        """See none any more; an error that passes through the model bears no trace of this."""
        self._leave_stack()
        error = sys.exc_info()[1]
        if error is not None:
            _conceal(error.__traceback__)
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo and self._leave_before_compiling in dynamo.callback_handler.start_callbacks:
            dynamo.callback_handler.start_callbacks.remove(self._leave_before_compiling)

    def _leave_before_compiling(self, *_: Any) -> None:
        """Go before torch.compile looks around, which would compile a mode into what it makes."""
        if self._leave_stack():
            self.compiling = True

    def _leave_stack(self) -> bool:
        """Leave torch's stack of modes; return whether this was in it, on this thread."""
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
    """Take out of a traceback how functions are called when they are seen."""
    ours = FunctionCalls.__torch_function__.__code__
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code is not ours:
            kept.append(trace)
        elif len(kept) > 2 and kept[-1].tb_frame.f_code is handle_torch_function.__code__:
            # A function in Python hands itself over, and is called once more.
            del kept[-2:]
        trace = trace.tb_next
    for entry, following in itertools.zip_longest(kept, kept[1:]):
        entry.tb_next = following


def functions_can_be_seen() -> bool:
    """Return whether what torch.compile has made allows for a mode that it does not know."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return True
    stance = dynamo.eval_frame._stance.stance
    return stance in ("default", "force_eager") and not dynamo.config.error_on_recompile
