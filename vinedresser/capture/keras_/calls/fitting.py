"""Capturing from ``fit``, ``evaluate``, ``predict`` and the methods that take one batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vinedresser.capture.keras_.calls.evaluation import Evaluation
from vinedresser.capture.keras_.calls.functions import Functions
from vinedresser.capture.keras_.calls.training import Training
from vinedresser.capture.keras_.watched import Watched

__all__ = ["Fitting"]


class Fitting:
    """Stands around the functions by which Keras trains, evaluates and predicts.

    Args:
        watched: the model.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._count = watched.count
        self._look = watched.session.shield.guard("looking for new layers", self._looked)
        self._runner = watched.backend.runner(watched)
        self._functions = Functions(watched.model)
        test = Evaluation(watched, "eval", self._runner)
        predict = Evaluation(watched, "predict", self._runner)
        self._around("train", Training(watched, self._runner).run)
        self._around("test", test.test)
        self._around("predict", predict.predict)
        self._functions.around_method("evaluate", test.around)
        self._functions.around_method("predict", predict.around)

    def remove(self) -> None:
        """Leave the model as it was found."""
        self._functions.remove()

    def _looked(self) -> None:
        self._watched.met({id(layer) for _, layer in self._watched.names.layers()})

    def _around(self, word: str, doing: Callable[..., Any]) -> None:
        """Stand around the function of one kind of step: "train", "test" or "predict"."""

        @functools.wraps(doing)
        def inner(*args: Any) -> Any:
            before, self._watched.busy = self._watched.busy, True
            try:
                return doing(*args)
            finally:
                self._watched.busy = before

        def again() -> None:
            self._runner.reset(f"{word}_step")
            # Keras builds a model before it makes the functions.
            self._look()
            if word == "train":
                self._count.forget()
                self._watched.session.newly_set_up = True

        self._functions.around_made(f"make_{word}_function", f"{word}_function", inner, again)
