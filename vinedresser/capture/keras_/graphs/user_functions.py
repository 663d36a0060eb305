"""Detection of the user's tf.functions that train watched models."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.graphs.traced_function import converted
from vinedresser.capture.keras_.graphs.user_function import UserFunction
from vinedresser.capture.keras_.observation.interception import current_observer, observing
from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.watched_model import WatchedModel

__all__ = ["UserFunctions"]


class UserFunctions:
    """Intercepts all calls of tf.functions while a model is watched.

    A function called during the trace of a captured step becomes part of that trace; TensorFlow
    inlines it into the graph anyway.
    """

    def __init__(self) -> None:
        self._watched: list[WatchedModel] = []
        self._known: weakref.WeakKeyDictionary[Any, UserFunction] = weakref.WeakKeyDictionary()
        self._local = threading.local()

    @property
    def patch_point(self) -> PatchPoint:
        """The method through which every tf.function is called."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(function: Any, *args: Any, **kwargs: Any) -> Any:
                return self._call(original, function, args, kwargs)

            return call

        return type(tf.function(lambda: None)), "__call__", make

    def watch(self, watched: WatchedModel) -> None:
        """Start looking for functions that train a model."""
        self._watched.append(watched)

    def unwatch(self, watched: WatchedModel) -> None:
        """Stop looking for functions that train a model."""
        self._watched.remove(watched)
        self._known.clear()

    def on_traced_call(self) -> None:
        """Handle a call of a watched model in a function that is being traced."""
        if self._outermost is not None:
            self._outermost.calls_model = True

    def on_traced_update(self, watched: WatchedModel, optimizer: Any) -> None:
        """Handle an update of a watched model in a function that is being traced."""
        if self._outermost is not None:
            self._outermost.register_update(watched, optimizer)
            return
        watched.session.shield.report(
            f"{type(optimizer).__name__}.apply is part of a compiled function that was not called "
            "as a tf.function, for example one from get_concrete_function: its tensors are not "
            "captured and its steps are not counted"
        )

    @property
    def _outermost(self) -> UserFunction | None:
        """The running function that was called from Python; None outside of any function."""
        found: UserFunction | None = getattr(self._local, "outermost", None)
        return found

    def _call(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if current_observer() is not None:
            return self._call_observed(original, function, args, kwargs)
        busy = self._outermost is not None or any(one.busy for one in self._watched)
        if busy or not self._watched or tf.inside_function():
            return original(function, *args, **kwargs)
        known = self._known.get(function)
        if known is None:
            session = self._watched[0].session
            watched = [one for one in self._watched if one.session is session]
            known = self._known[function] = UserFunction(watched)
        if not known.relevant:
            return original(function, *args, **kwargs)
        self._local.outermost = known
        try:
            return known.call(functools.partial(original, function), function, args, kwargs)
        finally:
            self._local.outermost = None

    def _call_observed(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function inside an observed step."""
        if tf.inside_function() and not function._jit_compile:
            return converted(function)(*args, **kwargs)
        for watched in self._watched:
            watched.session.shield.report(
                f"nothing is captured inside the compiled function {function.name}"
            )
        with observing(None):
            return original(function, *args, **kwargs)
