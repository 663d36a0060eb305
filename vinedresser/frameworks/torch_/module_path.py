"""Which module is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import (
    _global_forward_hooks_with_kwargs,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)


@contextmanager
def following(
    modules: Mapping[str, torch.nn.Module],
    path: list[str],
    passed: Callable[[str, Any], object] = lambda *_: None,
) -> Iterator[None]:
    """Keep the names of the modules that are running, the innermost last.

    The hooks are global, which is faster than two for each module.

    Args:
        path: names are appended to it while their modules run.
        passed: called after each module, with the name of one that can read them, and with its
            arguments and results: of the module itself and of the one that called it.
    """
    names = {module: name for name, module in modules.items()}

    def enter(module: torch.nn.Module, _: Any) -> None:
        if module in names:
            path.append(names[module])

    def leave(module: torch.nn.Module, *values: Any) -> None:
        if module in names:
            passed(path.pop(), values)
            passed(path[-1], values)

    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, with_kwargs=True, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()
        # Left by `remove`; torch.compile would warn of global hooks for the rest of the process.
        _global_forward_hooks_with_kwargs.pop(leaving.id, None)
