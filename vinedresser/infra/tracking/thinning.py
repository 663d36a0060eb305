"""Which steps of a long training are worth a point in MLflow."""

from __future__ import annotations

__all__ = ["thin"]

_ALL_BELOW = 1000


def thin(step: int) -> bool:
    """Say whether the metrics of a step are sent.

    Every step below 1,000, then each 10th below 10,000, each 100th below 100,000, and so on: at
    least 900 points for each further decade, so a million steps give 3,700 points. It depends on
    the step alone, so a second sending chooses the same.
    """
    stride = 1
    while step >= _ALL_BELOW * stride:
        stride *= 10
    return step % stride == 0
