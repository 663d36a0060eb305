"""Wrappers around the functions and methods of a Keras model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["FunctionWrappers"]

# Called with the wrapped function and the arguments of the call.
_Replacement = Callable[..., Any]


class FunctionWrappers:
    """Replaces methods of a model and the functions that Keras makes for it.

    The replacements are set as instance attributes, bypassing the attribute tracking of Keras, so
    they are not saved or cloned with the model.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: list[str] = []
        # The function last made by Keras and its wrapper, by attribute.
        self._made: dict[str, tuple[Any, Any]] = {}

    def wrap_made(
        self, maker: str, attribute: str, replacement: _Replacement, on_make: Callable[[], None]
    ) -> None:
        """Wrap a function that the model makes on demand.

        Args:
            maker: the model's method that makes it, such as "make_train_function".
            attribute: attribute in which it is stored, such as "train_function".
            replacement: called instead of it.
            on_make: called whenever a new function was made.
        """
        make = getattr(self._model, maker)

        def wrap() -> None:
            original = getattr(self._model, attribute)
            known = self._made.get(attribute)
            if original is None or (known is not None and original is known[1]):
                return
            on_make()
            wrapped = functools.partial(replacement, original)
            self._made[attribute] = (original, wrapped)
            vars(self._model)[attribute] = wrapped

        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            result = make(*args, **kwargs)
            wrap()
            return result if result is None else getattr(self._model, attribute)

        self._set(maker, made)
        wrap()

    def wrap_method(self, name: str, replacement: _Replacement) -> None:
        """Wrap a method of the model."""
        original = getattr(self._model, name)
        self._set(name, functools.wraps(original)(functools.partial(replacement, original)))

    def remove(self) -> None:
        """Restore the model's own functions and methods."""
        for attribute, (original, wrapped) in self._made.items():
            if getattr(self._model, attribute, None) is wrapped:
                vars(self._model)[attribute] = original
        self._made.clear()
        while self._names:
            vars(self._model).pop(self._names.pop(), None)

    def _set(self, name: str, function: Any) -> None:
        vars(self._model)[name] = function
        self._names.append(name)
