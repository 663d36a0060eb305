"""How the outputs of a model, the labels and the loss can contradict each other."""

from __future__ import annotations

from collections.abc import Callable

from vinedresser.rules.losses.activation_mismatches import (
    error_of_shares,
    no_logarithms,
    no_probabilities,
    one_unit_softmax,
    targets_out_of_reach,
    twice,
)
from vinedresser.rules.losses.label_mismatches import broadcast, labels_out_of_range
from vinedresser.rules.losses.mismatch import Given, Mismatch

__all__ = ["CHECKS"]

# In the order in which they are asked; of several that hold, the first is told.
CHECKS: tuple[Callable[[Given], Mismatch | None], ...] = (
    one_unit_softmax,
    broadcast,
    labels_out_of_range,
    no_logarithms,
    twice,
    no_probabilities,
    targets_out_of_reach,
    error_of_shares,
)
