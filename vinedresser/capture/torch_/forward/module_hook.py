"""Hooks on modules that copies and pickles of the modules do not take with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import nn

__all__ = ["ModuleHook"]


class ModuleHook:
    """A hook on a module of the user's.

    Modules are copied and pickled together with their hooks. Of this one, a copy has what does
    nothing and comes from the standard library, so that a pickle can be read without us.

    Args:
        call: the hook; called with the module and whatever torch gives beside it.
        owner: the only module for which it is called; None: any that has it, such as the replicas
            that data parallelism makes.
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
        # Takes whatever it is given and returns None.
        return getattr, (nullcontext(), "__exit__")
