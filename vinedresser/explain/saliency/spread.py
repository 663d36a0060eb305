"""Steps that are shown of many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# With the image itself, as many as a sheet has in a row.
_MOST_STEPS = 7


def spread(steps: NDArray[np.int64]) -> list[int]:
    """Return up to 7 steps, evenly spread from the first to the last.

    Args:
        steps: int64 [steps], ascending, at least one.
    """
    places = np.linspace(0, len(steps) - 1, min(len(steps), _MOST_STEPS)).round().astype(int)
    return [int(steps[place]) for place in places]
