"""The interface for changing a parameter of a running training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

__all__ = ["Change", "Changed", "Guard", "Tunable"]

# From an old value to the new one.
Change = Callable[[float], float]

# `Shield.guard`.
Guard = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Changed(NamedTuple):
    """What became of a parameter: a number for each group of the optimizer.

    Attributes:
        old: what it was; [] where it was not set.
        new: what it is.
    """

    old: list[float]
    new: list[float]


class Tunable(Protocol):
    """A parameter that may be changed between two steps."""

    def change(self, change: Change) -> Changed:
        """Change it in all groups, or, where the change of one raises an error, in none."""
