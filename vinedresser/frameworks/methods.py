"""Notification before a method is called, without a frame in its traceback, or around its calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

__all__ = ["listen", "replace", "wrap"]

# Methods that Python calls for code that does not contain their names.
_IMPLICIT = ("__call__", "__iter__", "__next__")

_Listener = Callable[[Any], object]
_Wrapper = Callable[[Any, Callable[..., Any]], Callable[..., Any]]


class _ObservedMethod:
    """A descriptor that replaces a method of a class while there are listeners or wrappers.

    Code that walks over all attributes of an object, as Keras does when it saves or loads a model,
    is ignored: it does not contain the name of the method.
    """

    def __init__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name
        # None if it is inherited; it may change in the base class.
        self._method = owner.__dict__.get(name)
        self._listeners: tuple[_Listener, ...] = ()
        self._wrappers: tuple[_Wrapper, ...] = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        observed = instance is not None and self._is_named(sys._getframe(1).f_code)
        if observed:
            for listener in self._listeners:
                listener(instance)
        if self._method is not None:
            method = self._method.__get__(instance, owner)
        else:
            start = owner if instance is None else instance
            method = getattr(super(self._owner, start), self._name)
        if observed:
            for wrapper in self._wrappers:
                method = wrapper(instance, method)
        return method

    def _is_named(self, code: CodeType) -> bool:
        """Return whether code that accesses the method can be calling it."""
        name = self._name
        return name in code.co_names or name in code.co_consts or name in _IMPLICIT

    def add(self, listener: _Listener | None, wrapper: _Wrapper | None) -> None:
        self._listeners += () if listener is None else (listener,)
        self._wrappers += () if wrapper is None else (wrapper,)

    def discard(self, either: _Listener | _Wrapper) -> None:
        """Remove a listener or a wrapper; the last one restores the method."""
        self._listeners = tuple(listener for listener in self._listeners if listener is not either)
        self._wrappers = tuple(wrapper for wrapper in self._wrappers if wrapper is not either)
        observed = self._listeners or self._wrappers
        if observed or self._owner.__dict__.get(self._name) is not self:
            return
        if self._method is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._method)


def listen(owner: type, name: str, listener: _Listener) -> Callable[[], None]:
    """Call a listener with each instance of a class whose method is accessed.

    A wrapper would add a frame to the traceback of every error in the method. The listener must
    tolerate that the method is accessed without being called.

    Args:
        owner: the class; instances of its subclasses count, too.
        listener: receives the instance; must not raise.

    Returns:
        A function that removes the listener.
    """
    method = _observed(owner, name)
    method.add(listener, None)
    return lambda: method.discard(listener)


def wrap(owner: type, name: str, wrapper: _Wrapper) -> Callable[[], None]:
    """Replace a method of a class wherever it is called.

    Args:
        owner: the class; instances of its subclasses count, too.
        wrapper: returns the function that is called in the place of a method; receives the instance
            and its bound method; must not raise.

    Returns:
        A function that removes the wrapper.
    """
    method = _observed(owner, name)
    method.add(None, wrapper)
    return lambda: method.discard(wrapper)


def replace(
    owner: type | ModuleType, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Replace a method of a class, or a function of a module, by one that calls it.

    Args:
        name: name of the method or function.
        make: receives the original; returns its replacement.

    Returns:
        A function that restores the original.
    """
    original = vars(owner)[name]
    setattr(owner, name, functools.wraps(original)(make(original)))
    return functools.partial(setattr, owner, name, original)


def _observed(owner: type, name: str) -> _ObservedMethod:
    method = owner.__dict__.get(name)
    if not isinstance(method, _ObservedMethod):
        method = _ObservedMethod(owner, name)
        setattr(owner, name, method)
    return method
