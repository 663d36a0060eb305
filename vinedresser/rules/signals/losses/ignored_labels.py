"""Labels that a loss leaves out of its mean, such as those of padding and of unknown pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.store.records import RunRecord

__all__ = ["IgnoredLabels"]

# Settings of torch and Keras.
_SETTINGS = ("ignore_index", "ignore_class")
# Classes and functions of torch that refuse all labels beyond the outputs but the ignored one.
_STRICT = frozenset({"CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"})
# What torch ignores unless another label is set, and what masked labels of Keras are recorded as.
_USUAL = -100


class IgnoredLabels:
    """The label that each loss ignores, by its settings or by the labels.

    Labels beyond the outputs that a cross-entropy of torch received are those that it ignores,
    since it refuses others. Of a loss whose function is not known, only -100 is certainly ignored:
    other numbers may be classes, such as -1 and 1.
    """

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        self._strict: set[str] = set()
        self._found: set[str] = set()

    def on_record(self, info: RunRecord) -> None:
        """Read the settings of the losses."""
        for loss, setup in info.losses.items():
            settings = setup.get("settings", {})
            for name in _SETTINGS:
                if isinstance(settings.get(name), int):
                    self._set[loss] = settings[name]
            kind = "" if setup.get("custom") is True else setup.get("type")
            if info.framework == "torch" and _STRICT & {kind, setup.get("function")}:
                self._strict.add(loss)

    def ignores(self, loss: str) -> bool:
        """Return whether a loss has ignored labels so far.

        Args:
            loss: name of the loss without its collection.
        """
        return loss in self._found

    def kept(
        self, loss: str, labels: NDArray[Any], predictions: NDArray[np.float64]
    ) -> NDArray[np.bool_] | None:
        """Return which labels count, once a loss has ignored some.

        Args:
            loss: name of the loss without its collection.
            labels: [rows, ...], any dtype.
            predictions: float64 [rows, ..., classes].

        Returns:
            bool, in the shape of the labels; None if the loss has ignored none, so far, or if the
            labels are no class numbers.
        """
        if labels.dtype.kind not in "iu" or labels.shape != predictions.shape[:-1]:
            return None
        beyond = (labels < 0) | (labels >= predictions.shape[-1])
        ignored = (labels == self._set.get(loss, _USUAL)) | (labels == _USUAL)
        if loss in self._strict and beyond.any():
            ignored = beyond
        if ignored.any():
            self._found.add(loss)
        return ~ignored if loss in self._found else None
