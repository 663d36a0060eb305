"""Contradictions between model outputs, labels and loss."""

from __future__ import annotations

from collections.abc import Callable

from vinedresser.rules.losses.activation_mismatches import (
    double_activation,
    error_of_shares,
    no_logarithms,
    no_probabilities,
    one_unit_softmax,
    targets_out_of_reach,
)
from vinedresser.rules.losses.label_mismatches import broadcast, labels_out_of_range
from vinedresser.rules.losses.mismatch import Given, Mismatch

# Checks in order of precedence; the first mismatch is reported.
CHECKS: tuple[Callable[[Given], Mismatch | None], ...] = (
    one_unit_softmax,
    broadcast,
    labels_out_of_range,
    no_logarithms,
    double_activation,
    no_probabilities,
    targets_out_of_reach,
    error_of_shares,
)
