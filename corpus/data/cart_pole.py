"""Poles on carts that are to be balanced.

After Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning
control problems", IEEE Transactions on Systems, Man, and Cybernetics, 1983.

Shape legend: N carts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["CartPole", "balanced"]

_GRAVITY, _POLE, _TOTAL, _HALF, _FORCE, _SECONDS = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
_ANGLE, _PLACE = 12 * math.pi / 180, 2.4


class CartPole:
    """Carts that are pushed to the left or to the right, in parallel.

    A state has the place in metres and the speed of the cart, the angle of the pole in radians and
    its speed. A cart whose pole falls or that leaves the track begins anew.

    Args:
        count: number of carts.
        most: moves after which an episode ends.
        seed: random seed.

    Attributes:
        state: float32 [N, 4].
    """

    def __init__(self, count: int, most: int, seed: int) -> None:
        self._source = torch.Generator().manual_seed(seed)
        self._count, self._most = count, most
        self.reset()

    def reset(self) -> Tensor:
        """Begin an episode with every cart, and return the states."""
        self.state = self._begun()
        self._moves = torch.zeros(self._count, dtype=torch.int64)
        return self.state

    def step(self, moves: Tensor) -> tuple[Tensor, Tensor]:
        """Push the carts.

        Args:
            moves: int64 [N], 0 to the left and 1 to the right.

        Returns:
            The next states, and whether the episodes have ended, bool [N].
        """
        _, speed, angle, turn = self.state.unbind(1)
        cos, sin = angle.cos(), angle.sin()
        push = (_FORCE * (2 * moves - 1) + _POLE * _HALF * turn**2 * sin) / _TOTAL
        spin = (_GRAVITY * sin - cos * push) / (_HALF * (4 / 3 - _POLE * cos**2 / _TOTAL))
        faster = push - _POLE * _HALF * spin * cos / _TOTAL
        changes = torch.stack([speed, faster, turn, spin], 1)
        self.state = self.state + _SECONDS * changes
        self._moves += 1
        fallen = (self.state[:, 0].abs() > _PLACE) | (self.state[:, 2].abs() > _ANGLE)
        ended = fallen | (self._moves >= self._most)
        self.state = torch.where(ended[:, None], self._begun(), self.state)
        self._moves[ended] = 0
        return self.state, ended

    def _begun(self) -> Tensor:
        return torch.rand(self._count, 4, generator=self._source) * 0.1 - 0.05


def balanced(world: CartPole, act: Callable[[Tensor], Tensor]) -> float:
    """Return the mean number of moves of each cart's first episode."""
    state = world.reset()
    going = torch.ones(len(state), dtype=torch.bool)
    total = 0
    while going.any():
        state, ended = world.step(act(state))
        total += int(going.sum())
        going &= ~ended
    return total / len(state)
