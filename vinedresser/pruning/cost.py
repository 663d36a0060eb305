"""Costs of a model before and after a plan, without running it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vinedresser.pruning.plan import Plan

__all__ = ["Cost", "cost", "shapes_after"]


@dataclass(frozen=True)
class Cost:
    """What a model costs.

    Attributes:
        parameters: number of elements of its parameters (without buffers).
        macs: multiply-accumulate operations of convolutions and linear layers for one example.
        size_bytes: bytes of its parameters and buffers.
    """

    parameters: int
    macs: int
    size_bytes: int


def shapes_after(
    shapes: Mapping[str, tuple[int, ...]], plan: Plan | None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors after a plan.

    Args:
        shapes: shape of each parameter and buffer by name.
        plan: what is removed; None: nothing.
    """
    after = dict(shapes)
    for name, axes in (plan.tensors if plan is not None else {}).items():
        sizes = list(shapes[name])
        for axis, gone in axes.items():
            sizes[int(axis)] -= len(gone)
        after[name] = tuple(sizes)
    return after


def cost(
    shapes: Mapping[str, tuple[int, ...]],
    parameters: frozenset[str],
    uses: Mapping[str, int],
    item_sizes: Mapping[str, int],
    plan: Plan | None = None,
) -> Cost:
    """Return the cost of a model after a plan.

    Args:
        shapes: shape of each parameter and buffer by name.
        parameters: names of the parameters.
        uses: how often each element of a weight is multiplied for one example: once per output
            position of a convolution, and once per row of a linear layer.
        item_sizes: bytes of an element of each parameter and buffer.
        plan: what is removed; None: nothing.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes_after(shapes, plan).items()}
    return Cost(
        parameters=sum(sizes[name] for name in parameters),
        macs=sum(sizes[name] * times for name, times in uses.items()),
        size_bytes=sum(sizes[name] * item_size for name, item_size in item_sizes.items()),
    )
