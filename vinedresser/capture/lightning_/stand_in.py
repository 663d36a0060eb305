"""Replacing a method of one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class StandIn:
    """A callable that replaces a method of one object until `leave`.

    Its signature is that of the method. Copies and pickles of the object have the original method.

    Args:
        owner: the object.
        name: name of the method.
        call: called instead of the method, with the method, its args and its kwargs.
    """

    def __init__(self, owner: Any, name: str, call: _Call) -> None:
        self._owner = owner
        self._name = name
        self._call = call
        self._method = getattr(owner, name)
        # An earlier replacement, such as a compiled method, is restored by `leave`.
        self._before = vars(owner).get(name)
        self.__doc__ = self._method.__doc__
        self.__name__ = name
        # Lightning unwraps one decorator to inspect the signature.
        self.__wrapped__ = getattr(self._method, "__wrapped__", self._method)
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the replacement."""
        return self._call(self._method, args, kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        return getattr, (self._owner, self._name)

    def leave(self) -> None:
        """Restore the method, unless it was replaced again since."""
        if vars(self._owner).get(self._name) is not self:
            return
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
