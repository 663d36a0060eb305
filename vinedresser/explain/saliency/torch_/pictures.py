"""Saliency maps from the terms of a decomposition."""

from __future__ import annotations

import torch

from vinedresser.explain.saliency.options import Method, Postprocess
from vinedresser.explain.saliency.torch_.arrangement import Arranged, arranged
from vinedresser.explain.saliency.torch_.axes import Axes, Role
from vinedresser.explain.saliency.torch_.tracer import Noted

__all__ = ["Pictures"]

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


class Pictures:
    """Sums pictures of terms; those of one size are added before they are enlarged.

    Args:
        method: what is shown.
        postprocess: what is done to each term before its channels are summed.
        pixels: roles of the dimensions of the map; none for no map.

    Attributes:
        pixels: the same.
    """

    def __init__(self, method: Method, postprocess: Postprocess, *pixels: Role) -> None:
        self._method = method
        self._postprocess = postprocess
        self.pixels = pixels
        self._by_size: dict[torch.Size, torch.Tensor] = {}

    def add_input(self, values: torch.Tensor, axes: Axes) -> None:
        """Add a term with the axes of the input, [batch, ...]."""
        if self.pixels:
            # A copy, since it is changed.
            self._add(arranged(values.clone(), axes, len(values)))

    def add(self, noted: Noted, gradient: torch.Tensor, product: Arranged) -> None:
        """Add the term of an operator, if its result has pixels.

        Args:
            noted: the operator.
            gradient: gradient with respect to its result.
            product: gradient times implicit bias; it is changed.
        """
        if not (self.pixels and product.has(*self.pixels)):
            return
        if self._method == "fullgrad":
            self._add(product)
        elif self._method == "simple_fullgrad":
            batch = product.values.shape[product.places["example"]]
            self._add(arranged(gradient.clone(), noted.axes, batch))

    def _add(self, term: Arranged) -> None:
        picture = self._processed(term)
        size = picture.shape[1:]
        self._by_size[size] = self._by_size.get(size, 0) + picture

    def _processed(self, term: Arranged) -> torch.Tensor:
        """Return a term's picture, [batch, pixels...]; the term is changed."""
        if self._postprocess != "none":
            # In place: new memory for a large term costs more than the arithmetic.
            term.values.abs_()
        picture = term.picture(*self.pixels)
        if self._postprocess != "rescale":
            return picture
        least, most = (one.view(-1, *[1] * len(self.pixels)) for one in term.ranges())
        layers = term.values.numel() // max(1, picture.numel())
        return (picture - layers * least) / (most - least + _EPSILON)

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
