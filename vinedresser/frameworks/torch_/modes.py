"""Torch's modes: functions in the place of all that torch calls, and computing unseen by modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = ["EachFunction", "EachOperator", "WithoutModes", "modes_are_active"]


class EachFunction(TorchFunctionMode):
    """A context in which a function is called in the place of each Python function of torch.

    Args:
        call: receives the function, its args and its kwargs; returns the result.
    """

    def __init__(self, call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; the mode is not active meanwhile."""
        return self._call(func, args, kwargs or {})


class EachOperator(TorchDispatchMode):
    """A context in which a function is called in the place of each operator, below autograd.

    Args:
        run: receives the operator, its args and its kwargs; returns the result.
    """

    def __init__(
        self, run: Callable[[torch._ops.OpOverload, tuple[Any, ...], Mapping[str, Any]], Any]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator; the mode is not active meanwhile."""
        return self._run(func, args, kwargs or {})


def modes_are_active() -> bool:
    """Return whether any torch function or dispatch mode is active."""
    return bool(torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack())


class WithoutModes:
    """A context without torch's function and dispatch modes.

    Modes, such as a default device, an operation counter or selective checkpointing, must see only
    the user's operations.
    """

    __slots__ = ("_functions", "_modes")

    def __enter__(self) -> None:
        self._functions: Any = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._modes: AbstractContextManager[Any] | None = None
        if torch._C._len_torch_dispatch_stack():
            self._modes = _disable_current_modes()
            self._modes.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._modes is not None:
            self._modes.__exit__(*error)
        self._functions.__exit__(*error)
