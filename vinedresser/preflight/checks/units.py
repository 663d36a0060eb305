"""Do the units of a layer differ?"""

from __future__ import annotations

from torch import Tensor

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["units"]

_LEAST_STEPS = 5


def units(evidence: Evidence) -> tuple[str, str]:
    """Look for layers whose units begin with the same weights, and stay the same.

    Identical units get identical gradients (Goodfellow et al., "Deep Learning", 2016, 8.4). Weights
    that begin with zeros are no fault if the steps make them different.
    """
    seen = evidence.seen
    if len(seen.steps) < _LEAST_STEPS:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    before = {
        (number, name): value
        for number, model in enumerate(evidence.trials.first.models)
        for name, value in model.named_parameters()
    }
    found = []
    for key, value in seen.parameters().items():
        copied = before.get(key)
        moved = copied is not None and not bool((value.detach() == copied.detach()).all())
        if moved and _are_identical(value.detach()):
            found.append(f"{key[1]} ({len(value)} units)")
    if found:
        return suspicious(
            f"after {len(seen.steps)} steps, all units are the same in {', '.join(found[:3])}: "
            "initialize weights with random numbers"
        )
    return fine("the units of each layer differ")


def _are_identical(weight: Tensor) -> bool:
    """Return whether a weight [units, ...] has several units, all with the same inputs."""
    if weight.dim() < 2 or len(weight) < 2:
        return False
    return bool((weight == weight[:1]).all())
