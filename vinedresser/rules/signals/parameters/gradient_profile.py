"""The size of the gradient along the depth of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from vinedresser.store.reading.step import Step

__all__ = ["FEWEST_LAYERS", "GradientProfile", "gradient_profile"]

# Minimum number of layers for a profile.
FEWEST_LAYERS = 3
# Minimum ratio that differs from 0.
_LEAST = 1e-300


class GradientProfile(NamedTuple):
    """The gradient along the depth of a model.

    Attributes:
        sizes: mean absolute gradient of each weight tensor by name, in the order of the model.
        shallow, deep: name of the largest in the first and in the last quarter.
        ratio: ratio of the gradients of ``shallow`` and ``deep``.
        steady: rank correlation of size and depth; 1 if the gradient fades at each layer on its
            way back, -1 if it grows at each.
    """

    sizes: dict[str, float]
    shallow: str
    deep: str
    ratio: float
    steady: float

    @property
    def per_layer(self) -> float:
        """The factor from a layer to the previous one, as a geometric mean."""
        return math.pow(max(self.ratio, _LEAST), 1 / max(1, len(self.sizes) - 1))


def gradient_profile(step: Step) -> GradientProfile | None:
    """Return the gradient along the depth; None if it was not captured, or is 0 or not finite.

    Args:
        step: step with the statistic ``abs_mean`` of gradients; biases are ignored.
    """
    if step.mode != "train":
        return None
    sizes = {
        name: size
        for name, size in step.reduction_of("gradients", "abs_mean").items()
        if "bias" not in name.rpartition(".")[2]
    }
    names = list(sizes)
    if len(names) < FEWEST_LAYERS:
        return None
    if not all(size > 0 and math.isfinite(size) for size in sizes.values()):
        return None
    quarter = max(1, len(names) // 4)
    shallow = max(names[:quarter], key=sizes.__getitem__)
    deep = max(names[-quarter:], key=sizes.__getitem__)
    ratio = sizes[shallow] / sizes[deep]
    return GradientProfile(sizes, shallow, deep, ratio, _rank_correlation(list(sizes.values())))


def _rank_correlation(values: Sequence[float]) -> float:
    """Return Spearman's rank correlation of values and their positions, without ties."""
    count = len(values)
    order = sorted(range(count), key=values.__getitem__)
    squares = sum((rank - position) ** 2 for rank, position in enumerate(order))
    return 1 - 6 * squares / (count * (count * count - 1))
