"""Selection of the steps of a long training whose metrics are sent to MLflow."""

from __future__ import annotations

_ALL_BELOW = 1000


def thin(step: int) -> bool:
    """Return whether the metrics of a step are sent to MLflow.

    All steps below 1,000 are, then every 10th below 10,000, every 100th below 100,000, and so on:
    900 points per decade, so 3,700 points for a million steps. The choice depends only on the step
    and is the same when a run is sent again.
    """
    stride = 1
    while step >= _ALL_BELOW * stride:
        stride *= 10
    return step % stride == 0
