"""Terms of operators: gradient times implicit bias, reduced to what a map and a sum need.

The gradients of large layers are read from memory once, and nothing of their size is allocated: on
a CPU that takes longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from vinedresser.explain.saliency.axes import Axes, Axis, Role
from vinedresser.explain.saliency.torch_.arrangement import Arranged, arranged
from vinedresser.explain.saliency.torch_.biases import Bias, Planes, dense

__all__ = ["Reducer", "Term"]

# Elements that are processed at once on a CPU: 1 MiB in float32.
_BLOCK = 2**18


class Term(NamedTuple):
    """A term by example.

    Attributes:
        sums: sum over everything, [batch].
        picture: sum over everything but pixels, of values or magnitudes, [batch, pixels...]; None
            if there are no pixels.
        least: least value or magnitude, [batch].
        most: largest value or magnitude, [batch].
        layers: number of elements in the sum of each pixel.
    """

    sums: torch.Tensor
    picture: torch.Tensor | None
    least: torch.Tensor
    most: torch.Tensor
    layers: int


class Reducer:
    """Computes terms.

    Args:
        inputs: the input of the model, [batch, ...].
        pixels: roles of the dimensions of a map; none for no map.
        signed: whether pictures add values; else they add magnitudes.
    """

    def __init__(self, inputs: torch.Tensor, pixels: tuple[Role, ...], *, signed: bool) -> None:
        self._batch = len(inputs)
        self._pixels = pixels
        self._signed = signed
        self._scratch = inputs.new_empty(0)

    def term(self, gradient: torch.Tensor, bias: Bias, axes: Axes) -> Term:
        """Return the term of an operator.

        Args:
            gradient: gradient with respect to the result of the operator.
            bias: implicit bias of the operator.
            axes: those of the result.
        """
        if gradient.is_contiguous() and self._is_image(gradient, axes):
            if isinstance(bias, Planes):
                return self._of_planes(gradient, bias)
            if bias.shape == (1, gradient.shape[1], 1, 1):
                return self._of_image(gradient, bias.view(-1))
            if bias.shape == gradient.shape:
                return self._of_image(gradient, bias)
        product = gradient * dense(bias, gradient)
        return self.of_product(arranged(product, axes, self._batch))

    def of_product(self, product: Arranged) -> Term:
        """Return a term that was multiplied already; it is changed."""
        sums = product.sums()
        if not self._signed:
            # In place: new memory for a large term costs more than the arithmetic.
            product.values.abs_()
        least, most = product.ranges()
        if not (self._pixels and product.has(*self._pixels)):
            return Term(sums, None, least, most, 0)
        picture = product.picture(*self._pixels)
        layers = product.values.numel() // max(1, picture.numel())
        return Term(sums, picture, least, most, layers)

    def _is_image(self, values: torch.Tensor, axes: Axes) -> bool:
        """Return whether values are [batch, channels, rows, columns]."""
        if values.ndim != 4 or self._pixels != ("row", "column") or len(values) != self._batch:
            return False
        expected: dict[Role, int] = {"example": 0, "row": 2, "column": 3}
        return all(
            axes.get(role) == Axis(dim, values.shape[dim], 1)
            for role, dim in expected.items()
            if role != "example" or self._batch > 1
        )

    def _of_image(self, gradient: torch.Tensor, bias: torch.Tensor) -> Term:
        """Return the term of a bias of each channel, [channels], or of the gradient's shape."""
        batch, channels, rows, columns = gradient.shape
        shape = (batch, channels, rows * columns)
        planes = gradient.view(shape)
        factors = bias.reshape(shape) if bias.ndim == 4 else None
        weights = gradient.new_ones(channels) if factors is not None else bias
        weights = weights if self._signed else weights.abs()
        picture = gradient.new_zeros(batch, rows * columns)
        # Of the values, and the least and largest of those that are shown.
        sums, lowest, highest = gradient.new_empty(3, batch, channels)
        for image, part in self._blocks(gradient):
            block = planes[image, part]
            buffer = self._buffer(*block.shape)
            if factors is not None:
                block = torch.mul(block, factors[image, part], out=buffer)
            torch.sum(block, -1, out=sums[image, part])
            shown = block if self._signed else torch.abs(block, out=buffer)
            torch.amin(shown, -1, out=lowest[image, part])
            torch.amax(shown, -1, out=highest[image, part])
            if block.ndim == 2:
                picture[image].addmv_(shown.t(), weights[part])
            else:
                torch.bmm(weights.expand(batch, 1, -1), shown, out=picture.unsqueeze(1))
        # With signs, a negative bias swaps them.
        ends = torch.stack([lowest * weights, highest * weights])
        total = sums.sum(1) if factors is not None else sums @ bias
        drawn = picture.view(batch, rows, columns)
        return Term(total, drawn, ends.amin((0, 2)), ends.amax((0, 2)), channels)

    def _blocks(self, gradient: torch.Tensor) -> Iterator[tuple[int | slice, slice]]:
        """Yield parts that fit into the cache of a processor: images and channels."""
        batch, channels = gradient.shape[:2]
        if gradient.device.type != "cpu" or gradient.numel() <= _BLOCK:
            yield slice(None), slice(None)
            return
        width = max(1, _BLOCK // gradient.shape[2:].numel())
        for image in range(batch):
            for first in range(0, channels, width):
                yield image, slice(first, first + width)

    def _buffer(self, *shape: int) -> torch.Tensor:
        """Return memory for a block, which is used again by the next one."""
        count = math.prod(shape)
        if len(self._scratch) < count:
            self._scratch = self._scratch.new_empty(count)
        return self._scratch[:count].view(shape)

    def _of_planes(self, gradient: torch.Tensor, bias: Planes) -> Term:
        """Return the term of a bias in a few planes."""
        batch, channels, rows, columns = gradient.shape
        planes = gradient.view(batch * channels, rows * columns)
        example = bias.numbers // channels
        picture = gradient.new_zeros(batch, rows * columns)
        sums, lowest, highest = gradient.new_empty(3, len(example))
        width = max(1, _BLOCK // planes.shape[1])
        for first in range(0, len(example), width):
            part = slice(first, first + width)
            buffer = self._buffer(len(example[part]), planes.shape[1])
            block = torch.index_select(planes, 0, bias.numbers[part], out=buffer)
            torch.sum(block.masked_fill_(bias.zero[part], 0), 1, out=sums[part])
            if not self._signed:
                block.abs_()
            torch.amin(block, 1, out=lowest[part])
            torch.amax(block, 1, out=highest[part])
            picture.index_add_(0, example[part], block)
        # All other planes are zero; there may be none of an example.
        zeros = gradient.new_zeros(batch)
        full = torch.bincount(example, minlength=batch) == channels
        least = torch.where(full, torch.inf, zeros)
        most = torch.where(full, -torch.inf, zeros)
        return Term(
            zeros.index_add(0, example, sums) * bias.value,
            picture.view(batch, rows, columns) * bias.value,
            least.scatter_reduce(0, example, lowest, "amin") * bias.value,
            most.scatter_reduce(0, example, highest, "amax") * bias.value,
            channels,
        )
