"""Capture from ``fit``, ``evaluate``, ``predict`` and the methods for a single batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.keras_.loops.evaluation import Evaluation
from vinedresser.capture.keras_.loops.train_function import TrainFunction
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.step_runner import StepRunner

# Called with the wrapped function and the arguments of the call.
_Replacement = Callable[..., Any]


class BuiltinLoops:
    """Wraps the functions with which Keras trains, evaluates and predicts.

    Args:
        runner: runs the steps of which tensors are captured.
    """

    def __init__(self, watched: WatchedModel, runner: StepRunner) -> None:
        self._watched = watched
        self._runner = runner
        self._find_layers = watched.session.shield.guard(
            "looking for new layers", self._register_layers
        )
        if watched.guard is not None:
            # Functions that were made before are not guarded.
            watched.model.train_function = None
        self._wrappers = _FunctionWrappers(watched.model)
        test = Evaluation(watched, "eval", runner)
        predict = Evaluation(watched, "predict", runner)
        self._wrap("train", TrainFunction(watched, runner).run)
        self._wrap("test", test.test)
        self._wrap("predict", predict.predict)
        self._wrappers.wrap_method("evaluate", test.run)
        self._wrappers.wrap_method("predict", predict.run)

    def remove(self) -> None:
        """Restore the model's own functions."""
        self._wrappers.remove()

    def _register_layers(self) -> None:
        self._watched.register_layers({id(layer) for _, layer in self._watched.names.layers()})

    def _wrap(self, kind: str, replacement: Callable[..., Any]) -> None:
        """Wrap the function of one kind of step: "train", "test" or "predict"."""

        @functools.wraps(replacement)
        def inner(*args: Any) -> Any:
            before, self._watched.busy = self._watched.busy, True
            try:
                return replacement(*args)
            finally:
                self._watched.busy = before

        def on_make() -> None:
            self._runner.reset(f"{kind}_step")
            # Keras builds a model before it makes the functions.
            self._find_layers()
            if kind == "train":
                self._watched.counter.forget()
                self._watched.session.newly_set_up = True

        making = self._watched.making if kind == "train" else nullcontext
        self._wrappers.wrap_made(
            f"make_{kind}_function", f"{kind}_function", inner, on_make, making
        )


class _FunctionWrappers:
    """Replaces methods of a model and the functions that Keras makes for it.

    The replacements are set as instance attributes, bypassing the attribute tracking of Keras, so
    they are not saved or cloned with the model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._names: list[str] = []
        # The function last made by Keras and its wrapper, by attribute.
        self._made: dict[str, tuple[Any, Any]] = {}

    def wrap_made(
        self,
        maker: str,
        attribute: str,
        replacement: _Replacement,
        on_make: Callable[[], None],
        making: Callable[[], AbstractContextManager[None]],
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
            with making():
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
