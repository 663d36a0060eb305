"""Computing something of our own in the midst of a user's forward."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["WithoutModes", "modes_are_active"]


def modes_are_active() -> bool:
    """Return whether there is any mode of torch from which to turn aside."""
    return bool(torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack())


class WithoutModes:
    """A context in which nobody sees what is computed.

    Torch's modes (a default device, a counter of operations, selective checkpointing, which saves
    the results of some and counts on meeting the same ones again) are for the user's operations.
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
