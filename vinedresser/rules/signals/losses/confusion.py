"""The confusion matrix of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.signals.losses.compared import Compared

_MOST_CLASSES = 100


def confusion(compared: Compared) -> NDArray[np.int64] | None:
    """Return the confusion matrix of a batch.

    Args:
        compared: labels and predictions of the batch.

    Returns:
        int64 [true classes, predicted classes]; None without classes or with more than 100.
    """
    classes = compared.classes
    numbers = compared.class_numbers if classes <= _MOST_CLASSES else None
    if numbers is None:
        return None
    cells = numbers.ravel() * classes + compared.predictions.argmax(-1).ravel()
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)
