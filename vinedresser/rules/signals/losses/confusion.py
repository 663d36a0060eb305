"""Which classes a model takes for which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared
from vinedresser.rules.signals.losses.loss_formulas import class_indices

__all__ = ["confusion"]

_MOST_CLASSES = 100


def confusion(compared: Compared) -> NDArray[np.int64] | None:
    """Return how often each class was taken for each.

    Args:
        compared: what the loss of a batch compared.

    Returns:
        [classes, classes], the true class first; None: there are none, or more than 100.
    """
    predictions = compared.predictions
    classes = predictions.shape[-1] if predictions.ndim > 1 else 1
    if not 1 < classes <= _MOST_CLASSES:
        return None
    numbers = class_indices(compared.labels, classes)
    if numbers is None or numbers.shape != predictions.shape[:-1]:
        return None
    cells = numbers.ravel() * classes + predictions.argmax(-1).ravel()
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)
