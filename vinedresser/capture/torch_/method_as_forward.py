"""Making a forward of what a framework calls in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["MethodAsForward"]


class MethodAsForward(nn.Module):
    """Stands around a model of which a method is called in a step, not its forward.

    Its own forward is that method, so that a step of the model is a forward of this.

    Args:
        module: the model.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._method: Callable[..., Any] | None = None

    def run(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the model as this one's forward."""
        before, self._method = self._method, method
        try:
            return self(*args, **kwargs)
        finally:
            self._method = before

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        assert self._method is not None
        return self._method(*args, **kwargs)
