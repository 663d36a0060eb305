"""Seeing that a method is about to be called, without standing in its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["listen"]


class _Place:
    """Stands in a class in the place of a method, and tells when an instance's is fetched.

    A wrapper around the method would stand in the traceback of every error that comes out of it. A
    method that is merely fetched runs as if nobody had looked; what does not call what it fetches
    is for the listener to tell.
    """

    def __init__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name
        # None: it is inherited, and may change where it comes from.
        self._method = owner.__dict__.get(name)
        self._listeners: tuple[Callable[[Any], object], ...] = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None:
            for listener in self._listeners:
                listener(instance)
        if self._method is not None:
            return self._method.__get__(instance, owner)
        return getattr(super(self._owner, owner if instance is None else instance), self._name)

    def add(self, listener: Callable[[Any], object]) -> None:
        """Take in a listener."""
        self._listeners += (listener,)

    def discard(self, listener: Callable[[Any], object]) -> None:
        """Let go of a listener; with the last one the method comes back to its place."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        if self._listeners or self._owner.__dict__.get(self._name) is not self:
            return
        if self._method is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._method)


def listen(owner: type, name: str, listener: Callable[[Any], object]) -> Callable[[], None]:
    """Have a listener called with each instance of a class whose method is fetched.

    Args:
        owner: the class, or one that it inherits the method from.
        name: of the method.
        listener: takes the instance; it must not raise.

    Returns:
        What ends it.
    """
    place = owner.__dict__.get(name)
    if not isinstance(place, _Place):
        place = _Place(owner, name)
        setattr(owner, name, place)
    place.add(listener)
    return lambda: place.discard(listener)
