"""The scales of a model's inputs, and the inputs without them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.replay.batch import Batch

__all__ = ["Scales"]

# Inputs within these limits are not worth a change.
_LARGEST, _SMALLEST = 3.0, 0.1


class Scales:
    """Mean and deviation of each feature of a model's arguments in one batch.

    Arguments of one shape share them, so that equal samples stay equal.

    Attributes:
        lowest: smallest input.
        highest: largest input.
        unusual: whether a mean or deviation is far from 0 and 1.
    """

    def __init__(self, batch: Batch) -> None:
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        for _, one in leaves((batch.args, batch.kwargs)):
            if _is_input(one):
                groups.setdefault(tuple(one.shape[1:]), []).append(one.detach().float())
        self._known: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self.lowest, self.highest, self.unusual = 0.0, 0.0, False
        for shape, tensors in groups.items():
            values = torch.cat(tensors)
            if not torch.isfinite(values).all():
                continue
            # Of images and sequences per channel or feature.
            kept = 1 if values.dim() != 3 else 2
            others = [place for place in range(values.dim()) if place != kept]
            mean = values.mean(others, keepdim=True)
            deviation = values.std(others, keepdim=True, correction=0)
            self.lowest = min(self.lowest, float(values.min()))
            self.highest = max(self.highest, float(values.max()))
            self.unusual |= bool((mean.abs() > _LARGEST).any() or (deviation > _LARGEST).any())
            self.unusual |= 0 < float(deviation.max()) < _SMALLEST
            deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
            self._known[shape] = mean, deviation

    def normalized(self, value: Any) -> Any:
        """Return an input with mean 0 and deviation 1; any other value as it is."""
        if not isinstance(value, Tensor) or not _is_input(value):
            return value
        known = self._known.get(tuple(value.shape[1:]))
        if known is None:
            return value
        mean, deviation = (one.to(value.device) for one in known)
        return ((value - mean) / deviation).to(value.dtype)


def _is_input(value: Tensor) -> bool:
    return value.is_floating_point() and value.dim() > 1 and value.layout == torch.strided
