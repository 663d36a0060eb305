"""Interception of Keras methods for all watched models of the process.

Methods of Keras classes are replaced while at least one model is watched. The replacements notify
the observers, pass on their arguments and return the original's result.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.metrics.reduction_metrics import Mean
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import CompileLoss
from keras.src.trainers.trainer import Trainer

from vinedresser.capture.keras_.observation.comparisons import Comparison
from vinedresser.capture.keras_.observation.loop_losses import Differentiation
from vinedresser.capture.keras_.observation.observers import (
    ModelObserver,
    Original,
    PatchPoint,
    StepObserver,
)
from vinedresser.frameworks.methods import replace

__all__ = [
    "current_observer",
    "notify_comparison",
    "notify_differentiation",
    "observing",
    "unwatch",
    "watch",
]


class _Local(threading.local):
    step_observer: StepObserver | None = None
    applying: bool = False


_LOCAL = _Local()
# By the id of the model and of the loss object.
_observers: dict[int, ModelObserver] = {}
_losses: dict[int, ModelObserver] = {}
_restores: list[Callable[[], None]] = []


def current_observer() -> StepObserver | None:
    """Return the step observer of this thread; None if there is none."""
    return _LOCAL.step_observer


@contextmanager
def observing(step_observer: StepObserver | None) -> Iterator[None]:
    """Observe this thread until the block ends; None suspends observation."""
    before, _LOCAL.step_observer = _LOCAL.step_observer, step_observer
    try:
        yield
    finally:
        _LOCAL.step_observer = before


def notify_differentiation(target: Any, sources: Any) -> None:
    """Notify the observers of gradients that are taken; see `Differentiation`."""
    differentiation = Differentiation(target, sources)
    if _LOCAL.step_observer is not None:
        _LOCAL.step_observer.on_differentiation(differentiation)
        return
    for observer in list(_observers.values()):
        observer.on_differentiation(differentiation)


def notify_comparison(comparison: Comparison) -> None:
    """Notify the observers of a call of a loss object or function."""
    if _LOCAL.step_observer is not None:
        _LOCAL.step_observer.on_comparison(comparison)
        return
    for observer in list(_observers.values()):
        observer.on_comparison(comparison)


def watch(observer: ModelObserver) -> None:
    """Register an observer; the first one patches Keras."""
    if not _restores:
        _restores.extend(replace(*one) for one in (*_PATCH_POINTS, *observer.patch_points))
    _observers[id(observer.model)] = observer
    if observer.loss is not None:
        _losses[id(observer.loss)] = observer


def unwatch(observer: ModelObserver) -> None:
    """Remove an observer; the last one restores the methods of Keras."""
    for known in (_observers, _losses):
        for key in [key for key, one in known.items() if one is observer]:
            del known[key]
    while _restores and not _observers:
        _restores.pop()()


def _layer_call(original: Original) -> Original:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        step_observer = _LOCAL.step_observer
        observer = _observers.get(id(self))
        if observer is None:
            if step_observer is not None:
                return step_observer.call_layer(original, self, args, kwargs)
            return original(self, *args, **kwargs)
        notes = None if observer.guard is None else observer.guard.call(args, kwargs)
        if step_observer is not None:
            output = step_observer.call_layer(original, self, args, kwargs)
        else:
            output = observer.call_model(original, args, kwargs)
        if notes is not None:
            notes.add_output(output)
        return output

    return call


def _apply(original: Original) -> Original:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        # A LossScaleOptimizer calls its inner optimizer within the same step.
        if _LOCAL.applying:
            return original(self, grads, trainable_variables)
        if _LOCAL.step_observer is not None:
            _LOCAL.step_observer.before_update(self, grads, trainable_variables)
        watching = list(_observers.values())
        for observer in watching:
            observer.before_update(self, grads, trainable_variables)
        _LOCAL.applying = True
        update = functools.partial(original, self, grads, trainable_variables)
        for observer in watching:
            if observer.guard is not None:
                update = functools.partial(
                    observer.guard.updating, self, grads, trainable_variables, update
                )
        try:
            result = update()
        finally:
            _LOCAL.applying = False
        if _LOCAL.step_observer is not None:
            _LOCAL.step_observer.after_update()
        for observer in watching:
            observer.after_update(self)
        return result

    return apply


def _update_state(original: Original) -> Original:
    def update_state(self: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.step_observer is not None:
            _LOCAL.step_observer.on_mean_update(self, values)
        return original(self, values, *args, **kwargs)

    return update_state


def _compute_loss(original: Original) -> Original:
    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.step_observer is not None:
            given = dict(zip(("x", "y", "y_pred"), args, strict=False)) | kwargs
            _LOCAL.step_observer.on_loss_inputs(self, given.get("y"), given.get("y_pred"))
        loss = original(self, *args, **kwargs)
        observer = _observers.get(id(self))
        if observer is not None and observer.guard is not None:
            observer.guard.took_loss("loss", loss, (), total=True)
        return loss

    return compute_loss


def _compiled_loss(original: Original) -> Original:
    def call(self: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.step_observer is not None:
            _LOCAL.step_observer.on_loss_inputs(self, y_true, y_pred)
        return original(self, y_true, y_pred, *args, **kwargs)

    return call


def _loss(original: Original) -> Original:
    def call(self: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        value = original(self, y_true, y_pred, *args, **kwargs)
        observer = _losses.get(id(self))
        if observer is not None:
            observer.on_loss(value, (y_true, y_pred))
        for one in _observers.values():
            if one.guard is not None:
                one.guard.took_loss(self.name, value, (y_true, y_pred, *args), total=False)
        notify_comparison(Comparison(self, value, y_true, y_pred))
        return value

    return call


def _attention(original: Original) -> Original:
    def compute_attention(self: Any, *args: Any, **kwargs: Any) -> Any:
        step_observer = _LOCAL.step_observer
        if step_observer is None:
            return original(self, *args, **kwargs)
        return step_observer.compute_attention(original, self, args, kwargs)

    return compute_attention


_PATCH_POINTS: tuple[PatchPoint, ...] = (
    (keras.layers.Layer, "__call__", _layer_call),
    (BaseOptimizer, "apply", _apply),
    (keras.optimizers.LossScaleOptimizer, "apply", _apply),
    (Mean, "update_state", _update_state),
    (Trainer, "_compute_loss", _compute_loss),
    (CompileLoss, "__call__", _compiled_loss),
    (keras.losses.Loss, "__call__", _loss),
    (keras.layers.MultiHeadAttention, "_compute_attention", _attention),
    (keras.layers.GroupQueryAttention, "_compute_attention", _attention),
)
