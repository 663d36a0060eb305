"""Costs of a model before and after a plan, without running it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.pruning.group import Group, Indices
from vinedresser.pruning.plan import Plan

__all__ = ["Cost", "SavedMacs", "cost", "shapes_after"]


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


class SavedMacs:
    """Multiply-accumulate operations that the removal of channels saves, one after the other.

    An operation reads one group and makes another, so each removal makes the other cheaper.

    Args:
        shapes: shape of each parameter and buffer by name.
        uses: see `cost`.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        shapes: Mapping[str, tuple[int, ...]],
        uses: Mapping[str, int],
    ) -> None:
        self._uses = uses
        self._shapes = {name: shapes[name] for name in uses}
        self._per_channel = [_positions(group, uses) for group in groups]

    def saved(self, place: int, count: int) -> int:
        """Return the operations that one more removal would save.

        Args:
            place: place of the group.
            count: number of its channels.
        """
        return sum(
            self._uses[name] * (math.prod(self._shapes[name]) - math.prod(after))
            for name, after in self._after(place, count).items()
        )

    def remove(self, place: int, count: int) -> None:
        """Remove channels of a group; see `saved`."""
        self._shapes |= self._after(place, count)

    def _after(self, place: int, count: int) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(
                size - count * axes.get(axis, 0) for axis, size in enumerate(self._shapes[name])
            )
            for name, axes in self._per_channel[place].items()
        }


def _positions(group: Group, uses: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Return how many positions each channel of a group has, by weight and axis."""
    indices: dict[str, dict[int, list[Indices]]] = {}
    for member in group.members:
        if member.tensor in uses:
            axes = indices.setdefault(member.tensor, {})
            axes.setdefault(member.axis, []).append(member.indices[0])
    return {
        name: {axis: np.unique(np.concatenate(found)).size for axis, found in axes.items()}
        for name, axes in indices.items()
    }
