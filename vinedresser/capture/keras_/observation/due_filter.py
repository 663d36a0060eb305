"""Selection of the tensors that are due in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinedresser.capture.config.capture_config import Due

__all__ = ["UPDATE_TENSORS", "DueFilter", "Emit", "due_filter"]

# Returns whether the tensor of a full name is due.
DueFilter = Callable[[str], bool]
# Receives a due tensor with its full name.
Emit = Callable[[str, Any], None]

# Name prefixes of tensors that exist only in batches that update the weights.
UPDATE_TENSORS = ("gradients/", "updates/")
# Captured in every batch of a step; all others in its first batch only.
_EACH_BATCH = ("losses/", *UPDATE_TENSORS)


def due_filter(method: str, due: Due | None, *, later: bool) -> DueFilter:
    """Return the filter of the tensors that are due in a batch.

    Args:
        method: the model's method: "train_step", or another, whose losses Keras reports at the end.
        due: the due collections; None if nothing is due.
        later: whether the batch is not the first of its step or evaluation.
    """

    def is_due(name: str) -> bool:
        each_batch = name.startswith(_EACH_BATCH)
        if due is None or (method != "train_step" if each_batch else later):
            return False
        return bool(due.ask(name))

    return is_due
