"""Computing within a user's forward, hidden from torch's modes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["WithoutModes", "modes_are_active"]


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
