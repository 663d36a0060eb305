"""Is everything finite, and what does a step cost?"""

from __future__ import annotations

import resource
from statistics import median

import torch

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["cost", "finite"]


def finite(evidence: Evidence) -> tuple[str, str]:
    """Look for losses and parameters that are not finite."""
    seen = evidence.seen
    if seen.nonfinite:
        return suspicious(seen.nonfinite)
    for (_, name), value in seen.parameters().items():
        if not bool(torch.isfinite(value).all()):
            return suspicious(f"after {len(seen.steps)} steps, {name} is not finite")
    if not seen.steps:
        return unchecked("no step was seen")
    return fine(f"losses and parameters of {len(seen.steps)} steps")


def cost(evidence: Evidence) -> tuple[str, str]:
    """Return CPU time and memory of a step; there is nothing that they should be."""
    seen = evidence.seen
    if len(seen.steps) < 2:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    seconds = median(step.seconds for step in seen.steps[1:])
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    number = sum(one.numel() for one in seen.parameters().values())
    return fine(
        f"{seconds * 1e3:.3g} ms of CPU per step while watched, {kibibytes / 1024:.0f} MiB of "
        f"memory in all, {number} trained parameters"
    )
