"""Rows of requests for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["requests"]


def requests(
    random: np.random.Generator, rows: int, *, shift: float = 0.0
) -> dict[str, NDArray[Any]]:
    """Return rows with columns of each kind, of which "age" is shifted."""
    return {
        "age": random.normal(40 + 10 * shift, 10, rows),
        "visits": random.poisson(3, rows),
        "member": random.random(rows) < 0.3,
        "city": random.choice(np.array(["Bonn", "Kiel", "Ulm"], object), rows, p=[0.6, 0.3, 0.1]),
        "embedding": random.normal(size=(rows, 6)),
    }
