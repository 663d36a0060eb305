"""Tracebacks of torch modules as they are where nobody has hooks on them."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Sequence
from functools import cache
from types import CodeType

from torch import nn
from torch.nn.modules import module as torch_module
from torch.overrides import handle_torch_function

from vinedresser.capture.attach.tracebacks import Entry, is_ours
from vinedresser.capture.torch_.forward.module_hook import ModuleHook

__all__ = ["without_capture"]

# How torch calls the forward of a module that has no hooks.
_PLAIN = "return forward_call(*args, **kwargs)"


def without_capture(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a traceback that are there without us.

    Torch calls the forward of a module with hooks by an inner function, and has a function that is
    seen in its calls call itself once more through whoever looks on.
    """
    plain: list[Entry] = []
    for number, entry in enumerate(entries):
        if is_ours(entry):
            if plain and plain[-1].frame.f_code is handle_torch_function.__code__:
                plain.pop()
                again = entries[number + 1].frame if number + 1 < len(entries) else None
                if plain and again is not None and plain[-1].frame.f_code is again.f_code:
                    plain.pop()
        elif plain and _is_way_around(plain[-1], entry):
            call = _plain_call(plain[-1].frame.f_code)
            plain[-1] = plain[-1] if call is None else Entry(plain[-1].frame, *call)
        else:
            plain.append(entry)
    return plain


def _is_way_around(outer: Entry, inner: Entry) -> bool:
    """Say whether an entry is a module's call, and the next its inner function for our hooks."""
    code = outer.frame.f_code
    return (
        code is nn.Module._call_impl.__code__
        and inner.frame.f_code in code.co_consts
        and _plain_call(code) is not None
        and _only_ours(outer.frame.f_locals["self"])
    )


def _only_ours(module: nn.Module) -> bool:
    """Say whether nobody else has a hook on the calls of a module."""
    if torch_module._has_any_global_hook() or module._backward_hooks or module._backward_pre_hooks:
        return False
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return all(isinstance(hook, ModuleHook) for hook in hooks)


@cache
def _plain_call(code: CodeType) -> tuple[int, int] | None:
    """Return instruction and line of the call of a forward without hooks; None for none."""
    call = dis.opmap["CALL_FUNCTION_EX"]
    for index, (line, *_) in enumerate(code.co_positions()):
        source = linecache.getline(code.co_filename, line or 0)
        if code.co_code[2 * index] == call and line is not None and source.strip() == _PLAIN:
            return 2 * index, line
    return None
