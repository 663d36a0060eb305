"""The cores that trainings share."""

from __future__ import annotations

import os

__all__ = ["core_shortage", "cores"]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def core_shortage(ranks: int) -> str:
    """Return one sentence about ranks that share a core; "" if there are cores enough."""
    if ranks <= cores():
        return ""
    return f"{ranks} ranks share {cores()} cores, which makes each of them slower"
