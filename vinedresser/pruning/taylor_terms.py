"""Taylor terms collected over batches, whatever framework computed them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.criteria.criterion import Floats, Measured, Measurement
from vinedresser.pruning.group import Group, Role, layer_of

__all__ = ["TaylorTerms", "check_loss", "weights_by_layer"]


class TaylorTerms:
    """What was measured so far.

    Attributes:
        batches: number of batches that have ended.
    """

    def __init__(self, measurements: Collection[Measurement]) -> None:
        self.batches = 0
        self._terms: dict[Measurement, dict[str, list[Floats]]] = {
            measurement: {} for measurement in measurements
        }
        self._calls: dict[str, list[Floats]] = {}

    def add_input(self, weights: Iterable[str], terms: Floats) -> None:
        """Add the terms of an input of the layer that reads it, for one call in this batch.

        Args:
            weights: the layer's weights that read the input.
            terms: float64 [..., channels].
        """
        for weight in weights:
            self._calls.setdefault(weight, []).append(terms)

    def add_weight(self, weight: str, terms: Floats) -> None:
        """Add the terms of a weight in this batch, float64 [channels]."""
        self._terms["weight_taylor"].setdefault(weight, []).append(terms)

    def end_batch(self) -> None:
        """Join the terms of all calls of each layer in the batch."""
        for weight, calls in self._calls.items():
            rows = [call.reshape(-1, call.shape[-1]) for call in calls]
            self._terms["input_taylor"].setdefault(weight, []).append(np.concatenate(rows))
        self._calls.clear()
        self.batches += 1

    def finish(self) -> Measured:
        """Return all terms: one array per batch, for each weight.

        Raises:
            PruningError: there was no batch, or a value is not finite.
        """
        if not self.batches:
            raise PruningError(
                "losses: yields nothing; the criterion needs the loss of some batches"
            )
        for measurement, tensors in self._terms.items():
            for name, steps in tensors.items():
                for step, value in enumerate(steps):
                    if not np.isfinite(value).all():
                        raise PruningError(
                            f"{measurement} of {name} in batch {step}: not finite; the gradient is "
                            "NaN or infinite"
                        )
        return self._terms


def check_loss(value: float, batch: int) -> None:
    """Check the value of a batch's loss.

    Raises:
        PruningError: it is not finite.
    """
    if not math.isfinite(value):
        raise PruningError(f"losses: batch {batch}: the loss is {value}")


def weights_by_layer(groups: Iterable[Group], role: Role) -> dict[str, set[str]]:
    """Return the weights in which channels have a role, by the path of their layer."""
    found: dict[str, set[str]] = {}
    for group in groups:
        for member in group.of_role(role):
            found.setdefault(layer_of(member.tensor), set()).add(member.tensor)
    return found
