"""The scale of each layer's weights, relative to its width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vinedresser.store.collections.modules import module_of
from vinedresser.store.reading.step import Step

__all__ = ["WeightScale", "weight_scales"]

# Layers whose weights are not matrices that multiply a signal.
_NO_MATRICES = ("Embedding", "Norm")


class WeightScale(NamedTuple):
    """The size of one weight tensor.

    Attributes:
        scale: rms times the square root of the width: 1.41 in He's initialisation, about 1 in
            Xavier's and LeCun's, 0.58 in PyTorch's default.
        rms: root mean square of the elements.
        width: square root of the number of elements, for a dense layer the geometric mean of its
            inputs and outputs.
    """

    scale: float
    rms: float
    width: float


def weight_scales(
    step: Step, modules: Mapping[str, Sequence[str]] | None = None
) -> dict[str, WeightScale]:
    """Return the scale of each weight tensor, except norm layers and embeddings.

    The number of elements n follows from l2² = n (std² + mean²). For tensors of zeros it is
    unknown, and the width is 0.

    Args:
        step: step with the statistics ``l2``, ``std`` and ``mean`` of weights.
        modules: [type, activation, ...] by path, from the run's record. Without it, norm layers are
            recognised by their initial weights, which are all 1.
    """
    norms = step.reduction_of("weights", "l2")
    means = step.reduction_of("weights", "mean")
    found = {}
    for name, std in step.reduction_of("weights", "std").items():
        if name not in norms or name not in means or _no_matrix(name, modules or {}):
            continue
        rms = math.hypot(std, means[name])
        if not math.isfinite(rms) or not math.isfinite(norms[name]):
            continue
        if std == 0 and means[name] == 1:
            continue
        width = norms[name] / rms if rms > 0 else 0.0
        found[name] = WeightScale(rms * math.sqrt(width), rms, width)
    return found


def _no_matrix(name: str, modules: Mapping[str, Sequence[str]]) -> bool:
    words = modules.get(module_of(name) or "", ())
    return bool(words) and any(part in words[0] for part in _NO_MATRICES)
