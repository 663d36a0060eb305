"""The confidence of a difference, given its noise."""

from __future__ import annotations

import math


def confidence(margin: float) -> float:
    """Return the probability that a difference is not due to chance, for normal errors.

    Args:
        margin: difference in standard errors; infinite without noise.
    """
    return 0.5 * (1 + math.erf(margin / math.sqrt(2)))
