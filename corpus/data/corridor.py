"""A tiny environment: a square of cells with a goal."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Corridor", "mean_return"]

_MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))


class Corridor:
    """Walk from a random cell to the goal.

    Each step costs 0.02, the goal gives 1, and an episode ends after four times the size of steps.

    Args:
        size: cells of a side.
        seed: random seed.
    """

    actions = len(_MOVES)

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._random = random.Random(seed)
        self._goal = (size - 1, size - 1)
        self._at = (0, 0)
        self._left = 0

    def reset(self) -> Tensor:
        """Begin an episode, and return the state, float32 [size * size]."""
        self._at = self._goal
        while self._at == self._goal:
            self._at = (self._random.randrange(self.size), self._random.randrange(self.size))
        self._left = 4 * self.size
        return self._state()

    def step(self, action: int) -> tuple[Tensor, float, bool]:
        """Move; return state, reward, and whether the episode has ended."""
        along = zip(self._at, _MOVES[action], strict=True)
        row, column = (min(max(at + by, 0), self.size - 1) for at, by in along)
        self._at = (row, column)
        self._left -= 1
        reached = self._at == self._goal
        return self._state(), 1.0 if reached else -0.02, reached or not self._left

    def _state(self) -> Tensor:
        state = torch.zeros(self.size * self.size)
        state[self._at[0] * self.size + self._at[1]] = 1.0
        return state


def mean_return(world: Corridor, act: Callable[[Tensor], int], episodes: int) -> float:
    """Return the mean sum of the rewards of some episodes."""
    total = 0.0
    for _ in range(episodes):
        state, ended = world.reset(), False
        while not ended:
            state, reward, ended = world.step(act(state))
            total += reward
    return total / episodes
