"""Numbers of any size, cut so that one can calculate with them."""

from __future__ import annotations

__all__ = ["bounded"]

# The square of it, and the sum of many such, fit into a float.
_GREATEST = 1e100


def bounded(value: float) -> float:
    """Return a finite value, cut at 1e100 in size: beyond, a difference means nothing."""
    return max(-_GREATEST, min(_GREATEST, value))
