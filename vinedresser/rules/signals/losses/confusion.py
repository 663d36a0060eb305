"""Which classes a model takes for which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared

__all__ = ["confusion"]

_MOST_CLASSES = 100


def confusion(compared: Compared) -> NDArray[np.int64] | None:
    """Return how often each class was taken for each.

    Args:
        compared: what the loss of a batch compared.

    Returns:
        [classes, classes], the true class first; None: there are none, or more than 100.
    """
    classes = compared.classes
    numbers = compared.class_numbers if classes <= _MOST_CLASSES else None
    if numbers is None:
        return None
    cells = numbers.ravel() * classes + compared.predictions.argmax(-1).ravel()
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)
