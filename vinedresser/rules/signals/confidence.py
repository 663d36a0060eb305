"""How sure a difference is that is held against its noise."""

from __future__ import annotations

import math

__all__ = ["confidence"]


def confidence(margin: float) -> float:
    """Return the probability that a difference is no chance, if errors are normal.

    Args:
        margin: the difference in standard errors; infinite without noise.
    """
    return 0.5 * (1 + math.erf(margin / math.sqrt(2)))
