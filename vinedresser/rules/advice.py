"""Texts that several rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Advice", "listed", "random_initialisation"]


class Advice(NamedTuple):
    """Likely cause of a fault, and a specific change to try."""

    cause: str
    remedy: str


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return names as text, at most the first few."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def random_initialisation(names: Sequence[str]) -> str:
    """Return the advice to initialise some weights randomly."""
    return (
        f"initialise {listed(names)} randomly: He (standard deviation sqrt(2 / inputs)) before "
        "relu, otherwise Xavier (sqrt(2 / (inputs + outputs)))"
    )
