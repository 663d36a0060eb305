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
    that begin with zeros are no fault if the steps make them different, and the outputs of the last
    layer may have the same targets.
    """
    seen = evidence.seen
    if len(seen.steps) < _LEAST_STEPS:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    before = {
        (number, name): value
        for number, model in enumerate(evidence.trials.first.models)
        for name, value in model.named_parameters()
    }
    weights = {key: value for key, value in seen.parameters().items() if value.dim() > 1}
    last = {number: (number, name) for number, name in weights}
    found = []
    for key, value in weights.items():
        copied = before.get(key)
        moved = copied is not None and not bool((value.detach() == copied.detach()).all())
        if moved and key != last[key[0]] and _are_identical(value.detach()):
            found.append(f"{key[1]} ({len(value)} units)")
    if found:
        return suspicious(
            f"after {len(seen.steps)} steps, all units are the same in {', '.join(found[:3])}: "
            "initialize weights with random numbers"
        )
    return fine("the units of each layer differ")


def _are_identical(weight: Tensor) -> bool:
    """Return whether a weight [units, ...] has several units, all with the same inputs."""
    return len(weight) > 1 and bool((weight == weight[:1]).all())
