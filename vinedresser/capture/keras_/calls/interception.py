"""The places in Keras at which capture looks in, for all watched models of the process.

Methods of Keras's classes are replaced by ones that look whether anybody watches, as long as
anybody does. They hand on what they are given, and return what the original returned.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import keras
from keras.src.metrics.reduction_metrics import Mean
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import CompileLoss
from keras.src.trainers.trainer import Trainer

__all__ = [
    "Observer",
    "Original",
    "Place",
    "Sight",
    "collecting",
    "current",
    "unwatch",
    "watch_all",
]

Original = Callable[..., Any]
# A class, the name of a method, and what makes of the method what stands in its place.
Place = tuple[type, str, Callable[[Original], Original]]


class Sight(Protocol):
    """Sees all that happens in one step or forward, while it runs or is traced."""

    def layer_called(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer, and return what it returned."""

    def attended(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """Have an attention layer compute its attention, and return what it returned."""

    def mean_updated(self, metric: Any, value: Any) -> None:
        """See a value that goes into a mean."""

    def compared(self, owner: Any, labels: Any, predictions: Any) -> None:
        """See what the loss is computed of.

        Args:
            owner: a model or its compiled loss.
            labels: what the predictions are to be.
            predictions: of the model.
        """

    def updating(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See what an optimizer is about to apply."""

    def updated(self) -> None:
        """See that it was applied."""

    def see_loss(self, name: str, value: Any) -> None:
        """See what a loss function of the user's own returned.

        Args:
            name: of the loss, with its model's prefix.
            value: what it returned.
        """


class Observer(Protocol):
    """Sees what happens to a watched model."""

    @property
    def model(self) -> Any:
        """The watched model."""

    @property
    def loss(self) -> Any:
        """The watched loss object, or None."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Where else to look in, in the backend of Keras."""

    def model_called(self, original: Original, args: Any, kwargs: Any) -> Any:
        """Call the model where nobody looks on, and return what it returned."""

    def before_update(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """See what any optimizer is about to apply."""

    def after_update(self, optimizer: Any) -> None:
        """See that it was applied."""

    def loss_computed(self, value: Any, arguments: tuple[Any, ...]) -> None:
        """See what the watched loss object has returned."""


class _Local(threading.local):
    sight: Sight | None = None
    applying: bool = False


_LOCAL = _Local()
# By identity of the model, and of the loss object.
_observers: dict[int, Observer] = {}
_losses: dict[int, Observer] = {}
_originals: list[tuple[type, str, Any]] = []


def current() -> Sight | None:
    """Return what looks on in this thread; None where nothing does."""
    return _LOCAL.sight


@contextmanager
def collecting(sight: Sight | None) -> Iterator[None]:
    """Let something look on in this thread until the block ends; None: nothing."""
    before, _LOCAL.sight = _LOCAL.sight, sight
    try:
        yield
    finally:
        _LOCAL.sight = before


def watch_all(observer: Observer) -> None:
    """Let an observer see what concerns its model from now on."""
    if not _originals:
        for owner, name, make in (*_PLACES, *observer.places):
            _replace(owner, name, make)
    _observers[id(observer.model)] = observer
    if observer.loss is not None:
        _losses[id(observer.loss)] = observer


def unwatch(observer: Observer) -> None:
    """Show an observer nothing more; the last one leaves Keras as it was found."""
    for known in (_observers, _losses):
        for key in [key for key, one in known.items() if one is observer]:
            del known[key]
    while _originals and not _observers:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _replace(owner: type, name: str, make: Callable[[Original], Original]) -> None:
    """Put what a function makes of a method into its place."""
    original = vars(owner)[name]
    _originals.append((owner, name, original))
    setattr(owner, name, functools.wraps(original)(make(original)))


def _layer_call(original: Original) -> Original:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        sight = _LOCAL.sight
        if sight is not None:
            return sight.layer_called(original, self, args, kwargs)
        observer = _observers.get(id(self))
        if observer is None:
            return original(self, *args, **kwargs)
        return observer.model_called(original, args, kwargs)

    return call


def _apply(original: Original) -> Original:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        # An optimizer that scales the loss hands on to another one, which is the same step.
        if _LOCAL.applying:
            return original(self, grads, trainable_variables)
        if _LOCAL.sight is not None:
            _LOCAL.sight.updating(self, grads, trainable_variables)
        watching = list(_observers.values())
        for observer in watching:
            observer.before_update(self, grads, trainable_variables)
        _LOCAL.applying = True
        try:
            result = original(self, grads, trainable_variables)
        finally:
            _LOCAL.applying = False
        if _LOCAL.sight is not None:
            _LOCAL.sight.updated()
        for observer in watching:
            observer.after_update(self)
        return result

    return apply


def _update_state(original: Original) -> Original:
    def update_state(self: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.sight is not None:
            _LOCAL.sight.mean_updated(self, values)
        return original(self, values, *args, **kwargs)

    return update_state


def _compute_loss(original: Original) -> Original:
    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.sight is not None:
            given = dict(zip(("x", "y", "y_pred"), args, strict=False)) | kwargs
            _LOCAL.sight.compared(self, given.get("y"), given.get("y_pred"))
        return original(self, *args, **kwargs)

    return compute_loss


def _compiled_loss(original: Original) -> Original:
    def call(self: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        if _LOCAL.sight is not None:
            _LOCAL.sight.compared(self, y_true, y_pred)
        return original(self, y_true, y_pred, *args, **kwargs)

    return call


def _loss(original: Original) -> Original:
    def call(self: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        value = original(self, y_true, y_pred, *args, **kwargs)
        observer = _losses.get(id(self))
        if observer is not None:
            observer.loss_computed(value, (y_true, y_pred))
        return value

    return call


def _attention(original: Original) -> Original:
    def compute_attention(self: Any, *args: Any, **kwargs: Any) -> Any:
        sight = _LOCAL.sight
        if sight is None:
            return original(self, *args, **kwargs)
        return sight.attended(original, self, args, kwargs)

    return compute_attention


_PLACES: tuple[Place, ...] = (
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
