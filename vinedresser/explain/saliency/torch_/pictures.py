"""Saliency maps from the terms of a decomposition."""

from __future__ import annotations

import torch

from vinedresser.explain.saliency.options import Method, Postprocess
from vinedresser.explain.saliency.torch_.arrangement import Arranged, arranged
from vinedresser.explain.saliency.torch_.axes import axes_of_input
from vinedresser.explain.saliency.torch_.tracer import Noted

__all__ = ["Pictures"]

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


class Pictures:
    """Sums pictures of terms; those of one size are added before they are enlarged.

    Args:
        method: what is shown.
        postprocess: what is done to each term before its channels are summed.
    """

    def __init__(self, method: Method, postprocess: Postprocess) -> None:
        self._method = method
        self._postprocess = postprocess
        self._by_size: dict[tuple[int, int], torch.Tensor] = {}

    def add_input(self, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the term of the input, both [batch, ...]."""
        if inputs.ndim == 4:
            # A copy, since it is changed.
            values = gradient.clone() if self._method == "gradient" else inputs * gradient
            self._add(arranged(values, axes_of_input(inputs), inputs.shape[0]))

    def add(self, noted: Noted, gradient: torch.Tensor, product: Arranged) -> None:
        """Add the term of an operator, if its result has rows and columns.

        Args:
            noted: the operator.
            gradient: gradient with respect to its result.
            product: gradient times implicit bias; it is changed.
        """
        if not product.spatial:
            return
        if self._method == "fullgrad":
            self._add(product)
        elif self._method == "simple_fullgrad":
            batch = product.values.shape[product.places["example"]]
            self._add(arranged(gradient.clone(), noted.axes, batch))

    def _add(self, term: Arranged) -> None:
        picture = _processed(term, self._postprocess)
        size = (picture.shape[1], picture.shape[2])
        self._by_size[size] = self._by_size.get(size, 0) + picture

    def enlarged(self, height: int, width: int) -> torch.Tensor:
        """Return the sum of all pictures, float32 [batch, height, width]."""
        pictures = [
            one
            if size == (height, width)
            else torch.nn.functional.interpolate(
                one.unsqueeze(1), (height, width), mode="bilinear", align_corners=True
            ).squeeze(1)
            for size, one in self._by_size.items()
        ]
        return torch.stack(pictures).sum(0).float()


def _processed(term: Arranged, postprocess: Postprocess) -> torch.Tensor:
    """Return a term's picture, [batch, rows, columns]; the term is changed."""
    if postprocess != "none":
        # In place: new memory for a large term costs more than the arithmetic.
        term.values.abs_()
    picture = term.picture()
    if postprocess != "rescale":
        return picture
    least, most = (one.view(-1, 1, 1) for one in term.ranges())
    layers = term.values.numel() // max(1, picture.numel())
    return (picture - layers * least) / (most - least + _EPSILON)
