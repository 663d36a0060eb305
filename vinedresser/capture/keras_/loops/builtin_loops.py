"""Capture from ``fit``, ``evaluate``, ``predict`` and the methods for a single batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vinedresser.capture.keras_.loops.evaluation import Evaluation
from vinedresser.capture.keras_.loops.function_wrappers import FunctionWrappers
from vinedresser.capture.keras_.loops.train_function import TrainFunction
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.keras_.steps.step_runner import StepRunner

__all__ = ["BuiltinLoops"]


class BuiltinLoops:
    """Wraps the functions with which Keras trains, evaluates and predicts.

    Args:
        watched: the model.
        runner: runs the steps of which tensors are captured.
    """

    def __init__(self, watched: WatchedModel, runner: StepRunner) -> None:
        self._watched = watched
        self._runner = runner
        self._find_layers = watched.session.shield.guard(
            "looking for new layers", self._register_layers
        )
        self._wrappers = FunctionWrappers(watched.model)
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

        self._wrappers.wrap_made(f"make_{kind}_function", f"{kind}_function", inner, on_make)
