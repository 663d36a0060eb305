"""Where the examples, rows and columns of the input lie in a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

__all__ = ["Arrangement", "Axes", "Axis", "Role", "arrangement", "reshaped"]

Role = Literal["example", "row", "column"]


class Axis(NamedTuple):
    """Part of a dimension: at position i of it, the index is (i // stride) % size.

    Attributes:
        size: number of examples, rows or columns.
        stride: number of consecutive positions with the same index.
    """

    dim: int
    size: int
    stride: int


Axes = Mapping[Role, Axis]


def reshaped(source: Sequence[int], role: Role, axis: Axis, output: Sequence[int]) -> Axis | None:
    """Return an axis after the elements, in their order, got another shape; None if it is lost.

    Args:
        source: the shape before.
        axis: the axis before.
        output: the shape afterwards.
    """
    if axis.size == 1 and role != "example" and len(output) != len(source):
        return None
    stride = axis.stride * math.prod(source[axis.dim + 1 :])
    inner = 1
    for dim in reversed(range(len(output))):
        outer = inner * output[dim]
        whole = outer % (stride * axis.size) == 0 and stride % inner == 0
        if whole and stride < outer:
            return Axis(dim, axis.size, stride // inner)
        inner = outer
    return None


class Arrangement(NamedTuple):
    """A shape in which examples, rows and columns have dimensions of their own."""

    shape: list[int]
    places: dict[Role, int]


def arrangement(given: Sequence[int], axes: Axes, batch: int) -> Arrangement:
    """Return the arrangement of a tensor.

    Args:
        given: its shape.
        axes: where the examples and pixels lie.
        batch: number of examples; if it is 1, all elements belong to the only one.
    """
    known = dict(axes)
    lengths = list(given)
    if batch == 1:
        # Where an axis of length 1 lies says nothing.
        known.pop("example", None)
        lengths.append(1)
    shape: list[int] = []
    places: dict[Role, int] = {}
    for dim, length in enumerate(lengths):
        here = sorted(
            ((axis, role) for role, axis in known.items() if axis.dim == dim),
            key=lambda one: -one[0].stride,
        )
        left = length
        for axis, role in here:
            if left % (axis.size * axis.stride):
                continue
            outer = left // (axis.size * axis.stride)
            shape += [outer, axis.size] if outer > 1 else [axis.size]
            places[role] = len(shape) - 1
            left = axis.stride
        if left > 1 or not here:
            shape.append(left)
    if batch == 1:
        places["example"] = len(shape) - 1
    return Arrangement(shape, places)
