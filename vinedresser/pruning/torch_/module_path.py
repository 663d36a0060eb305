"""Which module is running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["following"]


@contextmanager
def following(modules: Mapping[str, torch.nn.Module], path: list[str]) -> Iterator[None]:
    """Keep the names of the modules that are running, the innermost last.

    The hooks are global, which is faster than two for each module.

    Args:
        modules: the modules, by name.
        path: names are appended to it while their modules run.
    """
    names = {module: name for name, module in modules.items()}

    def enter(module: torch.nn.Module, _: Any) -> None:
        if module in names:
            path.append(names[module])

    def leave(module: torch.nn.Module, *_: Any) -> None:
        if module in names:
            path.pop()

    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()
