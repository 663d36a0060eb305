"""Does the training take steps, and what does one cost?"""

from __future__ import annotations

import resource
from statistics import median

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["cost", "updates"]

# Backward passes of a training, not of an analysis of one batch.
_MANY = 10


def updates(evidence: Evidence) -> tuple[str, str]:
    """Look for a training whose optimizers take no step."""
    seen = evidence.seen
    if seen.steps:
        return fine(f"{len(seen.steps)} steps of an optimizer")
    if seen.unused >= _MANY and not (seen.moved or seen.cut):
        return suspicious(
            f"after {seen.unused} backward passes, no optimizer has taken a step, and no parameter "
            "has changed: step() is missing"
        )
    return unchecked("no step was seen")


def cost(evidence: Evidence) -> tuple[str, str]:
    """Return CPU time and memory of a step; there is nothing that they should be."""
    seen = evidence.seen
    if len(seen.steps) < 2:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    seconds = median(step.seconds for step in seen.steps[1:])
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    number = sum(parameter.numel() for parameter in seen.parameters().values())
    return fine(
        f"{seconds * 1e3:.3g} ms of CPU per step while watched, {kibibytes / 1024:.0f} MiB of "
        f"memory in all, {number} trained parameters"
    )
