"""Finding the tf.functions of the user's own in which watched models are trained."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.calls.interception import Place, collecting, current
from vinedresser.capture.keras_.steps.traced_function import converted
from vinedresser.capture.keras_.steps.user_function import UserFunction
from vinedresser.capture.keras_.watched import Watched

__all__ = ["UserFunctions"]


class UserFunctions:
    """Stands around all calls of tf.functions, as long as anybody watches a model.

    What is called while a step is traced to be looked on at becomes a part of that trace, as
    TensorFlow makes it a part of the graph anyway.
    """

    def __init__(self) -> None:
        self._watching: list[Watched] = []
        self._known: weakref.WeakKeyDictionary[Any, UserFunction] = weakref.WeakKeyDictionary()
        self._local = threading.local()

    @property
    def place(self) -> Place:
        """Where all calls come by."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(function: Any, *args: Any, **kwargs: Any) -> Any:
                return self._call(original, function, args, kwargs)

            return call

        return type(tf.function(lambda: None)), "__call__", make

    def watch(self, watched: Watched) -> None:
        """Look for functions that train a model from now on."""
        self._watching.append(watched)

    def leave(self, watched: Watched) -> None:
        """Look for no more of them."""
        self._watching.remove(watched)
        self._known.clear()

    def called(self) -> None:
        """Note that a watched model is called in the function that is being traced."""
        if self._outermost is not None:
            self._outermost.calls = True

    def updated(self, watched: Watched, optimizer: Any) -> None:
        """Note that a watched model is updated in the function that is being traced."""
        if self._outermost is not None:
            self._outermost.found(watched, optimizer)
            return
        watched.session.shield.report(
            f"{type(optimizer).__name__}.apply is a part of a compiled function that was not "
            "called as a tf.function, such as one of get_concrete_function: of what it does "
            "nothing is captured, and its steps are not counted"
        )

    @property
    def _outermost(self) -> UserFunction | None:
        """The function that Python has called and in which we are now; None outside of any."""
        found: UserFunction | None = getattr(self._local, "outermost", None)
        return found

    def _call(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if current() is not None:
            return self._call_in_sight(original, function, args, kwargs)
        busy = self._outermost is not None or any(one.busy for one in self._watching)
        if busy or not self._watching or tf.inside_function():
            return original(function, *args, **kwargs)
        known = self._known.get(function)
        if known is None:
            session = self._watching[0].session
            ours = [one for one in self._watching if one.session is session]
            known = self._known[function] = UserFunction(ours)
        if not known.matters:
            return original(function, *args, **kwargs)
        self._local.outermost = known
        try:
            return known.call(functools.partial(original, function), function, args, kwargs)
        finally:
            self._local.outermost = None

    def _call_in_sight(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function while a step is looked on at."""
        if tf.inside_function() and not function._jit_compile:
            return converted(function)(*args, **kwargs)
        for watched in self._watching:
            watched.session.shield.report(
                f"of what happens inside of the compiled function {function.name} nothing is "
                "captured"
            )
        with collecting(None):
            return original(function, *args, **kwargs)
