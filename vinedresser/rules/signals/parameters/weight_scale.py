"""How large the weights of each layer are, for its width."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.store.collections.modules import module_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vinedresser.store.reading.step import Step

__all__ = ["WeightScale", "weight_scales"]

# Layers whose weights are no matrices that a signal is multiplied by.
_NO_MATRICES = ("Embedding", "Norm")


class WeightScale(NamedTuple):
    """The size of one weight tensor.

    Attributes:
        scale: root mean square times root of the width: 1.41 in He's initialisation, about 1 in
            Xavier's and LeCun's, 0.58 in PyTorch's default. The width is the root of the number of
            elements: the geometric mean of inputs and outputs of a dense layer.
        rms: root mean square of its elements.
        width: as above.
    """

    scale: float
    rms: float
    width: float


def weight_scales(
    step: Step, modules: Mapping[str, Sequence[str]] | None = None
) -> dict[str, WeightScale]:
    """Return the size of each weight tensor; norm layers and embeddings are left out.

    With l2² = n (std² + mean²), n being the number of elements. Of zeros n is not known, and the
    width counts as 0.

    Args:
        step: with the statistics ``l2``, ``std`` and ``mean`` of weights.
        modules: of the run's record: [type, activation, ...] by path. What a norm layer's weights
            begin with, all ones, tells it where modules are not known.
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
