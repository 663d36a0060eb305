"""Carts with poles to balance, an environment for reinforcement learning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Carts"]

Floats = NDArray[np.float32]

_GRAVITY, _CART, _POLE, _LENGTH, _FORCE, _SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
_MAX_STEPS = 500


class Carts:
    """Several carts, each reset when its pole falls, it leaves the track, or 500 steps are over.

    Args:
        number: number of carts.
        seed: seed of their positions.
    """

    def __init__(self, number: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.state = self._start(number)
        self._ages = np.zeros(number, np.int64)

    def _start(self, number: int) -> Floats:
        return self._random.uniform(-0.05, 0.05, (number, 4)).astype(np.float32)

    def step(self, actions: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Push each cart to the left (0) or right (1).

        Args:
            actions: int64 [carts].

        Returns:
            States [carts, 4], rewards [carts], and 1 for each cart that was reset [carts].
        """
        _, speed, angle, turning = self.state.T
        force = np.where(actions == 1, _FORCE, -_FORCE)
        sine, cosine, mass = np.sin(angle), np.cos(angle), _CART + _POLE
        push = (force + _POLE * _LENGTH * turning**2 * sine) / mass
        lever = _LENGTH * (4 / 3 - _POLE * cosine**2 / mass)
        twist = (_GRAVITY * sine - cosine * push) / lever
        pull = push - _POLE * _LENGTH * twist * cosine / mass
        changes = (speed, pull, turning, twist)
        self.state = (self.state + _SECONDS * np.stack(changes, 1)).astype(np.float32)
        self._ages += 1
        far = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        over = far | (self._ages >= _MAX_STEPS)
        self.state[over] = self._start(int(over.sum()))
        self._ages[over] = 0
        return self.state.copy(), np.ones(len(over), np.float32), over.astype(np.float32)
