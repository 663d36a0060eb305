"""Saliency maps from the terms of a decomposition."""

from __future__ import annotations

import torch

from vinedresser.explain.saliency.torch_.terms import Term

__all__ = ["Pictures"]

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


class Pictures:
    """Sums pictures of terms; those of one size are added before they are enlarged.

    Args:
        rescaled: whether each term is scaled to [0, 1] first.
    """

    def __init__(self, *, rescaled: bool) -> None:
        self._rescaled = rescaled
        self._by_size: dict[torch.Size, torch.Tensor] = {}

    def add(self, term: Term) -> None:
        """Add a term, if it has pixels."""
        picture = term.picture
        if picture is None:
            return
        if self._rescaled:
            shape = [-1, *[1] * (picture.ndim - 1)]
            least, most = term.least.view(shape), term.most.view(shape)
            picture = (picture - term.layers * least) / (most - least + _EPSILON)
        size = picture.shape[1:]
        self._by_size[size] = self._by_size.get(size, 0) + picture

    def enlarged(self, *lengths: int) -> torch.Tensor | None:
        """Return the sum of all pictures, float32 [batch, pixels...]; None if there is no map.

        Args:
            lengths: number of rows, and of columns if there are any.
        """
        if not self._by_size:
            return None
        mode = "bilinear" if len(lengths) == 2 else "linear"
        pictures = [
            one
            if size == lengths
            else torch.nn.functional.interpolate(
                one.unsqueeze(1), lengths, mode=mode, align_corners=True
            ).squeeze(1)
            for size, one in self._by_size.items()
        ]
        return torch.stack(pictures).sum(0).float()
