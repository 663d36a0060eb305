"""The interface for changing a parameter of a running training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

__all__ = ["Change", "Changed", "Guard", "Tunable"]

# Computes the new value from the old one.
Change = Callable[[float], float]

# `Shield.guard`.
Guard = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class Changed(NamedTuple):
    """The change of a parameter: one number per parameter group of the optimizer.

    Attributes:
        old: previous values; [] if the parameter was not set.
        new: current values.
    """

    old: list[float]
    new: list[float]


class Tunable(Protocol):
    """A parameter that can be changed between two steps."""

    def change(self, change: Change) -> Changed:
        """Change the parameter in all groups, or in none if computing a new value fails."""
