"""Sums over a tensor by example and by pixel, wherever these lie in it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from vinedresser.explain.saliency.axes import Axes, Role, arrangement

__all__ = ["Arranged", "arranged"]


class Arranged(NamedTuple):
    """A view of a tensor in which examples, rows and columns have dimensions of their own.

    Attributes:
        values: the elements.
    """

    values: torch.Tensor
    places: dict[Role, int]

    def has(self, *roles: Role) -> bool:
        """Return whether all these roles have dimensions."""
        return all(role in self.places for role in roles)

    def _others(self, *roles: Role) -> list[int]:
        kept = {self.places[role] for role in roles}
        return [dim for dim in range(self.values.ndim) if dim not in kept]

    def sums(self) -> torch.Tensor:
        """Return the sum of each example, [batch]."""
        others = self._others("example")
        return self.values.sum(others) if others else self.values

    def ranges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the least and the largest value of each example, both [batch]."""
        others = self._others("example")
        if not others:
            return self.values, self.values
        return self.values.amin(others), self.values.amax(others)

    def picture(self, *pixels: Role) -> torch.Tensor:
        """Return the sums over everything but examples and pixels, [batch, pixels...]."""
        roles: tuple[Role, ...] = ("example", *pixels)
        others = self._others(*roles)
        summed = self.values.sum(others) if others else self.values
        kept = sorted(self.places[role] for role in roles)
        return summed.permute([kept.index(self.places[role]) for role in roles])


def arranged(tensor: torch.Tensor, axes: Axes, batch: int) -> Arranged:
    """Arrange a tensor.

    Args:
        tensor: any shape.
        axes: where the examples and pixels lie.
        batch: number of examples; if it is 1, all elements belong to the only one.
    """
    shape, places = arrangement(tensor.shape, axes, batch)
    return Arranged(tensor.reshape(shape), places)
