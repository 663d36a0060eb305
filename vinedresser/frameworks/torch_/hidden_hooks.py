"""Hiding hooks from TorchScript, which would compile them with the model, and from copies."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.jit._recursive as scripting
from torch import nn

from vinedresser.frameworks.torch_.module_calls import CompiledCalls, ModuleHook

_CODE = "_compiled_call_impl"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Torch's further notes on forward hooks have the hooks' keys.
_NOTES = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
_create: Any = scripting.create_script_module
_module_class: Any = nn.Module
_reduce: Any = nn.Module.__reduce_ex__


def hide_hooks() -> None:
    """Make `torch.jit.script`, copies and pickles ignore the hooks of vinedresser, from now on.

    Torch cannot skip a hook and rejects one that it cannot compile. It creates all script modules
    by the function replaced here. A module is copied and pickled with its hooks, which `torch.load`
    with ``weights_only`` refuses; the method replaced here returns the state that is copied.
    """
    scripting.create_script_module = _as_without_us
    _module_class.__reduce_ex__ = _reduced_without_us


@functools.wraps(_create)
def _as_without_us(nn_module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with _hooks_away(nn_module):
        return _create(nn_module, *args, **kwargs)


@functools.wraps(_reduce)
def _reduced_without_us(module: nn.Module, protocol: Any) -> Any:
    reduced = _reduce(module, protocol)
    if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
        return reduced
    make, arguments, state, *rest = reduced
    return make, arguments, {**state, **_without_hooks(state)}, *rest


def _without_hooks(attributes: Mapping[str, Any]) -> dict[str, OrderedDict[int, Any]]:
    """Return those tables of a module's hooks that have hooks of vinedresser, without them."""
    tables: dict[str, OrderedDict[int, Any]] = {}
    for name in _HOOKS:
        hooks = attributes.get(name) or {}
        ours = {key for key, hook in hooks.items() if isinstance(hook, ModuleHook)}
        for table in (name, *_NOTES[name]) if ours else ():
            items = attributes.get(table, {}).items()
            tables[table] = OrderedDict(item for item in items if item[0] not in ours)
    return tables


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
            for name, hooks in _without_hooks(attributes).items():
                replaced.append((attributes, name, attributes[name]))
                attributes[name] = hooks
        yield
    finally:
        for attributes, name, ours in replaced:
            attributes[name] = ours
