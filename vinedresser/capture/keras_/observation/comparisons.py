"""What calls of losses compare."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

__all__ = ["Comparison", "LossFunction", "is_same_loss"]


class LossFunction(NamedTuple):
    """A function of Keras or TensorFlow that a loop calls itself.

    Attributes:
        name: its name; its value is the loss of each row or element.
        settings: names and values of plain settings that are given to it.
    """

    name: str
    settings: tuple[tuple[str, Any], ...]


class Comparison(NamedTuple):
    """One call of a loss object of Keras, or of a loss function.

    Attributes:
        loss: the object, or a `LossFunction`.
        labels: what it compares the predictions with.
        predictions: a tensor, or a nesting of tensors.
    """

    loss: Any
    value: Any
    labels: Any
    predictions: Any


def is_same_loss(first: Any, second: Any) -> bool:
    """Return whether two loss objects or functions are the same, perhaps made anew in each step."""
    if isinstance(first, LossFunction) or isinstance(second, LossFunction) or first is second:
        return bool(first == second)
    alike = type(first) is type(second) and isinstance(first, keras.losses.Loss)
    return alike and first.get_config() == second.get_config()
