"""Notification before a method is called, without a frame in its traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

# Methods that Python calls for code that does not contain their names.
_IMPLICIT = ("__call__", "__next__")


class _ListenedMethod:
    """A descriptor that replaces a method and notifies listeners when an instance's is accessed.

    A wrapper would add a frame to the traceback of every error in the method. Listeners must
    tolerate that the method is accessed without being called. Code that walks over all attributes
    of an object, as Keras does when it saves or loads a model, is ignored: it does not contain the
    name of the method.
    """

    def __init__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name
        # None if it is inherited; it may change in the base class.
        self._method = owner.__dict__.get(name)
        self._listeners: tuple[Callable[[Any], object], ...] = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None and self._is_named(sys._getframe(1).f_code):
            for listener in self._listeners:
                listener(instance)
        if self._method is not None:
            return self._method.__get__(instance, owner)
        return getattr(super(self._owner, owner if instance is None else instance), self._name)

    def _is_named(self, code: CodeType) -> bool:
        """Return whether code that accesses the method can be calling it."""
        name = self._name
        return name in code.co_names or name in code.co_consts or name in _IMPLICIT

    def add(self, listener: Callable[[Any], object]) -> None:
        """Add a listener."""
        self._listeners += (listener,)

    def discard(self, listener: Callable[[Any], object]) -> None:
        """Remove a listener; the last one restores the method."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        if self._listeners or self._owner.__dict__.get(self._name) is not self:
            return
        if self._method is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._method)


def listen(owner: type, name: str, listener: Callable[[Any], object]) -> Callable[[], None]:
    """Call a listener with each instance of a class whose method is accessed.

    Args:
        owner: the class; instances of its subclasses count, too.
        name: name of the method.
        listener: receives the instance; must not raise.

    Returns:
        A function that removes the listener.
    """
    method = owner.__dict__.get(name)
    if not isinstance(method, _ListenedMethod):
        method = _ListenedMethod(owner, name)
        setattr(owner, name, method)
    method.add(listener)
    return lambda: method.discard(listener)
