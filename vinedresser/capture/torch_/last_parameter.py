"""The last of a model's parameters that fits a purpose."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor


class LastParameter:
    """The last parameter that can be hooked; it gets a gradient in most networks, and is small.

    It is held weakly, and looked for again when it has gone or can no longer be hooked.

    Args:
        usable: whether a parameter can be hooked.
    """

    def __init__(self, usable: Callable[[Tensor], bool]) -> None:
        self._usable = usable
        self._found: Callable[[], Tensor | None] = lambda: None

    def of(self, parameters: Callable[[], Iterable[Tensor]]) -> Tensor | None:
        """Return the parameter, or None if there is none.

        Args:
            parameters: return the parameters; called if the one found before cannot be used.
        """
        found = self.same()
        if found is None or not self._usable(found):
            usable = [parameter for parameter in parameters() if self._usable(parameter)]
            if not usable:
                return None
            found = usable[-1]
            self._found = weakref.ref(found)
        return found

    def same(self) -> Tensor | None:
        """Return the parameter found last, or None if there is none or it has gone."""
        return self._found()
