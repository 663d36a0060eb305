"""Hiding hooks from TorchScript, which would compile them with the model."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.jit._recursive as scripting
from torch import nn

from vinedresser.capture.torch_.forward.calls import CompiledCalls, ModuleHook

_CODE = "_compiled_call_impl"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_create: Any = scripting.create_script_module


def let_script() -> None:
    """Make `torch.jit.script` ignore the hooks of vinedresser, from now on.

    Torch cannot skip a hook and rejects one that it cannot compile. It creates all script modules
    by the function replaced here.
    """
    scripting.create_script_module = _as_without_us


@functools.wraps(_create)
def _as_without_us(nn_module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with _hooks_away(nn_module):
        return _create(nn_module, *args, **kwargs)


@contextmanager
def _hooks_away(module: nn.Module) -> Iterator[None]:
    """Remove the hooks of vinedresser from a module and its children within the block."""
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for part in module.modules():
            attributes = vars(part)
            calls = attributes.get(_CODE)
            if isinstance(calls, CompiledCalls):
                replaced.append((attributes, _CODE, calls))
                del attributes[_CODE]
                if calls.compiled is not None:
                    attributes[_CODE] = calls.compiled
            for name in _HOOKS:
                hooks = attributes.get(name)
                if hooks and any(isinstance(hook, ModuleHook) for hook in hooks.values()):
                    others = (item for item in hooks.items() if not isinstance(item[1], ModuleHook))
                    replaced.append((attributes, name, hooks))
                    attributes[name] = OrderedDict(others)
        yield
    finally:
        for attributes, name, ours in replaced:
            attributes[name] = ours
