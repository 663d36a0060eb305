"""Standing in for a method of one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["StandIn"]

_Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class StandIn:
    """A callable that stands in for a method of one object until `leave`.

    Who asks for the method's signature sees that of the method. A copy of the object, or what comes
    of its pickle, has the method itself.

    Args:
        owner: the object.
        name: of the method.
        call: called with the method and the arguments, in place of the method.
    """

    def __init__(self, owner: Any, name: str, call: _Call) -> None:
        self._owner = owner
        self._name = name
        self._call = call
        self._method = getattr(owner, name)
        # What stood in already, such as a compiled method, comes back.
        self._before = vars(owner).get(name)
        self.__doc__ = self._method.__doc__
        self.__name__ = name
        # Lightning looks one decorator deep.
        self.__wrapped__ = getattr(self._method, "__wrapped__", self._method)
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what stands in for the method."""
        return self._call(self._method, args, kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        return getattr, (self._owner, self._name)

    def leave(self) -> None:
        """Let the object have its method back, unless somebody else has taken it since."""
        if vars(self._owner).get(self._name) is not self:
            return
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
