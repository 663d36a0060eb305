"""Hooks on modules that are not part of the modules' copies and pickles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import nn

__all__ = ["ModuleHook"]


class ModuleHook:
    """A hook on a user's module.

    Modules are copied and pickled with their hooks. A copy of this hook is a no-op of the standard
    library, so pickles can be read without vinedresser.

    Args:
        call: called with the module and the other arguments of the hook.
        owner: the only module for which it is called; None: any module that has the hook, such as
            the replicas of data parallelism.
    """

    __slots__ = ("_call", "_owner")

    def __init__(self, call: Callable[..., Any], owner: nn.Module | None = None) -> None:
        self._call = call
        self._owner = owner

    def __call__(self, module: nn.Module, *rest: Any) -> Any:
        """Call the hook."""
        if self._owner is None or module is self._owner:
            return self._call(module, *rest)
        return None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        # Accepts any arguments and returns None.
        return getattr, (nullcontext(), "__exit__")
