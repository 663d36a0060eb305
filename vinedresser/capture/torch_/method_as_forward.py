"""Calling a method of a model as the forward of a wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class MethodAsForward(nn.Module):
    """Wraps a model so that a call of one of its methods is a forward of the wrapper.

    Frameworks such as Lightning call a method of the model in a step instead of its forward.

    Args:
        module: the model.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._method: Callable[..., Any] | None = None

    def run(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the model as the wrapper's forward."""
        before, self._method = self._method, method
        try:
            return self(*args, **kwargs)
        finally:
            self._method = before

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        assert self._method is not None
        return self._method(*args, **kwargs)
