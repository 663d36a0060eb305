"""The states of the random generators at the start of a train step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

__all__ = ["RandomStates", "current_states", "set_states"]

# Steps in which the states before and after the forward are compared, to learn what uses them.
_LEARNING = 5


def _numpy_state() -> Any:
    return np.random.get_state(legacy=False)


# Those that cost more than a copy of torch's: 8 and 30 µs.
_SLOW: dict[str, Callable[[], Any]] = {"python": random.getstate, "numpy": _numpy_state}


class RandomStates:
    """Notes the states of random generators before the first forward of each train step.

    The state of torch's generators is taken at every step. Those of Python and numpy cost more, and
    hardly any model draws from them: they are taken in the first steps, and later only if one of
    these steps has changed them between forward and update. Otherwise, the state at the time of the
    snapshot is the state before the forward.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._used: set[str] = set()
        self._taken: dict[str, Any] = {}

    def take(self) -> None:
        """Note the states at the start of a train step."""
        taken: dict[str, Any] = {"torch": torch.get_rng_state()}
        if torch.cuda.is_initialized():
            taken["cuda"] = torch.cuda.get_rng_state_all()
        for name, read in _SLOW.items():
            if self._steps < _LEARNING or name in self._used:
                taken[name] = read()
        self._taken = taken

    def update_begins(self) -> None:
        """Learn which generators the forward and backward have used."""
        if self._steps < _LEARNING and self._taken:
            self._steps += 1
            for name, read in _SLOW.items():
                if name in self._taken and not _same(self._taken[name], read()):
                    self._used.add(name)

    def values(self) -> dict[str, Any]:
        """Return the states at the start of the step, by generator."""
        return {**current_states(), **self._taken}


def current_states() -> dict[str, Any]:
    """Return the present states by generator: "torch", "python", "numpy", and "cuda" if used."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    states |= {name: read() for name, read in _SLOW.items()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_states(states: dict[str, Any]) -> None:
    """Set the random generators to states as `current_states` returns them.

    Raises:
        KeyError, RuntimeError, TypeError, ValueError: they are not states of these generators.
    """
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def _same(one: Any, other: Any) -> bool:
    """Return whether two states are equal; numpy's contain an array."""
    if isinstance(one, dict):
        return all(_same(value, other[key]) for key, value in one.items())
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)
