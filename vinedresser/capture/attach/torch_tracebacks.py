"""Tracebacks of torch modules without the frames caused by capture hooks."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Sequence
from functools import cache
from types import CodeType

from torch import nn
from torch.nn.modules import module as torch_module
from torch.overrides import handle_torch_function

from vinedresser.capture.attach.tracebacks import Entry, is_capture_frame
from vinedresser.frameworks.torch_.module_calls import ModuleHook
from vinedresser.frameworks.torch_.passing import is_passing

# The line with which torch calls the forward of a module without hooks.
_PLAIN = "return forward_call(*args, **kwargs)"


def without_capture(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a traceback as they are without capture.

    Torch calls the forward of a module with hooks in an inner function, and a function intercepted
    by a torch function mode calls itself again through that mode.
    """
    plain: list[Entry] = []
    for number, entry in enumerate(entries):
        if not _is_own(entry):
            if plain and plain[-1].frame.f_code is handle_torch_function.__code__:
                plain.pop()
                again = next((one.frame for one in entries[number:] if _is_own(one)), None)
                if plain and again is not None and plain[-1].frame.f_code is again.f_code:
                    plain.pop()
        elif plain and _is_hooked_call(plain[-1], entry):
            call = _plain_call(plain[-1].frame.f_code)
            plain[-1] = plain[-1] if call is None else Entry(plain[-1].frame, *call)
        else:
            plain.append(entry)
    return plain


def _is_own(entry: Entry) -> bool:
    return not (is_capture_frame(entry) or is_passing(entry.frame.f_code))


def _is_hooked_call(outer: Entry, inner: Entry) -> bool:
    """Return whether the entries are a module's call and its inner function for capture hooks."""
    code = outer.frame.f_code
    return (
        code is nn.Module._call_impl.__code__
        and inner.frame.f_code in code.co_consts
        and _plain_call(code) is not None
        and _has_only_capture_hooks(outer.frame.f_locals["self"])
    )


def _has_only_capture_hooks(module: nn.Module) -> bool:
    """Return whether all hooks on the calls of a module are those of capture."""
    if torch_module._has_any_global_hook() or module._backward_hooks or module._backward_pre_hooks:
        return False
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return all(isinstance(hook, ModuleHook) for hook in hooks)


@cache
def _plain_call(code: CodeType) -> tuple[int, int] | None:
    """Return instruction and line of the forward call without hooks; None if not found."""
    call = dis.opmap["CALL_FUNCTION_EX"]
    for index, (line, *_) in enumerate(code.co_positions()):
        source = linecache.getline(code.co_filename, line or 0)
        if code.co_code[2 * index] == call and line is not None and source.strip() == _PLAIN:
            return 2 * index, line
    return None
