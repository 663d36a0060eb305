"""Does every trainable parameter get a gradient, and is it cleared after each step?"""

from __future__ import annotations

import copy

import torch
from torch import nn

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.trials import NotRepeatable
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["clearing", "gradients"]

# Steps without which nothing is said.
_ENOUGH = 3
# Backward passes of a training, not of an analysis of one batch.
_MANY = 10
_SHOWN = 3


def gradients(evidence: Evidence) -> tuple[str, str]:
    """Look for parameters in the optimizer without a gradient on which the loss depends."""
    seen = evidence.seen
    if not seen.steps and seen.unused >= _MANY and not (seen.moved or seen.cut):
        return suspicious(
            f"after {seen.unused} backward passes, no optimizer has taken a step, and no parameter "
            "has changed: step() is missing"
        )
    if len(seen.steps) < _ENOUGH:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    updated = seen.parameters()
    untouched = {key: how for key, how in seen.untouched.items() if key in updated}
    if not untouched:
        return fine(f"{len(updated)} of {len(updated)} parameters have gradients")
    losses = [loss for step in seen.steps for loss in step.losses]
    alone = len(seen.optimizers) == 1
    if len(untouched) == len(updated) and alone and any(losses) and not seen.scaled:
        what = "no gradient" if "none" in untouched.values() else "gradients that are all zero"
        return suspicious(f"in {len(seen.steps)} steps, all parameters have {what}")
    return _partly(evidence, untouched)


def _partly(evidence: Evidence, untouched: dict[tuple[int, str], str]) -> tuple[str, str]:
    """Judge parameters without a gradient, if others have some."""
    names = [name for (_, name), how in untouched.items() if how == "none"]
    if not names:
        shown = ", ".join(name for _, name in list(untouched)[:_SHOWN])
        return unchecked(f"zero so far: {shown}; they may be used later")
    try:
        cut = [key for key, how in untouched.items() if how == "none" and _matters(evidence, key)]
    except NotRepeatable as error:
        return unchecked(f"no gradient: {', '.join(names[:_SHOWN])}, perhaps unused; {error}")
    if not cut:
        return fine(f"unused: {', '.join(names[:_SHOWN])}")
    shown = ", ".join(name for _, name in cut[:_SHOWN])
    return suspicious(f"the loss depends on {shown}, which get no gradient: the graph is cut")


def clearing(evidence: Evidence) -> tuple[str, str]:
    """Look for gradients that are still there when the next ones are computed."""
    seen = evidence.seen
    if len(seen.steps) < _ENOUGH:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    if len(seen.optimizers) > 1:
        return unchecked("several optimizers step")
    left = sum(step.uncleared for step in seen.steps[1:])
    if left == len(seen.steps) - 1:
        return suspicious(
            f"in all {left} steps, the gradient of the step before was added to: zero_grad() is "
            "missing, or is called after backward()"
        )
    return fine(f"cleared in {len(seen.steps) - 1 - left} of {len(seen.steps) - 1} steps")


@torch.no_grad()
def _matters(evidence: Evidence, key: tuple[int, str]) -> bool:
    """Return whether the loss changes with a parameter."""
    first = evidence.trials.first
    models: list[nn.Module] = copy.deepcopy(first.models)
    value = models[key[0]].get_parameter(key[1])
    value.add_(0.1 * value.abs().mean().clamp(min=1e-3) * torch.ones_like(value))
    changed = first.program.run(models, as_recorded=True)
    return abs(float(changed) - float(first.loss)) > 1e-5 * abs(float(first.loss))
