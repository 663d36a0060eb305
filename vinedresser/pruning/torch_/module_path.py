"""Which module is running."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

__all__ = ["following"]


@contextmanager
def following(modules: Mapping[str, torch.nn.Module], path: list[str]) -> Iterator[None]:
    """Keep the names of the modules that are running, the innermost last.

    Args:
        modules: the modules, by name.
        path: names are appended to it while their modules run.
    """
    with ExitStack() as stack:
        for name, module in modules.items():
            for handle in (
                module.register_forward_pre_hook(partial(_enter, path, name), prepend=True),
                module.register_forward_hook(partial(_leave, path), always_call=True),
            ):
                stack.callback(handle.remove)
        yield


def _enter(path: list[str], name: str, *_: Any) -> None:
    path.append(name)


def _leave(path: list[str], *_: Any) -> None:
    path.pop()
