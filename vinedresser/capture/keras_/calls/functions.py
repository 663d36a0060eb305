"""Standing around the functions that ``fit``, ``evaluate`` and ``predict`` call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Functions"]

# Does what a function of Keras does, given that function and what it is called with.
_Doing = Callable[..., Any]


class Functions:
    """Puts ours in the place of functions that Keras makes for a model, and of its methods.

    They are put into the model's own attributes, past the tracking of Keras, and so do not become a
    part of the model: nothing of them is saved or cloned with it.

    Args:
        model: the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: list[str] = []
        # By attribute: what Keras has made last, and what stands in its place.
        self._made: dict[str, tuple[Any, Any]] = {}

    def around_made(
        self, maker: str, attribute: str, doing: _Doing, again: Callable[[], None]
    ) -> None:
        """Stand around a function that the model makes when it needs it.

        Args:
            maker: the model's method that makes it, such as "make_train_function".
            attribute: where it puts it, such as "train_function".
            doing: called in its place, with it and its arguments.
            again: called whenever it was made anew.
        """
        make = getattr(self._model, maker)

        def wrap() -> None:
            plain = getattr(self._model, attribute)
            known = self._made.get(attribute)
            if plain is None or (known is not None and plain is known[1]):
                return
            again()
            wrapped = functools.partial(doing, plain)
            self._made[attribute] = (plain, wrapped)
            vars(self._model)[attribute] = wrapped

        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            result = make(*args, **kwargs)
            wrap()
            return result if result is None else getattr(self._model, attribute)

        self._put(maker, made)
        wrap()

    def around_method(self, name: str, doing: _Doing) -> None:
        """Stand around a method of the model."""
        original = getattr(self._model, name)
        self._put(name, functools.wraps(original)(functools.partial(doing, original)))

    def remove(self) -> None:
        """Leave the model as it was found."""
        for attribute, (plain, wrapped) in self._made.items():
            if getattr(self._model, attribute, None) is wrapped:
                vars(self._model)[attribute] = plain
        self._made.clear()
        while self._names:
            vars(self._model).pop(self._names.pop(), None)

    def _put(self, name: str, function: Any) -> None:
        vars(self._model)[name] = function
        self._names.append(name)
