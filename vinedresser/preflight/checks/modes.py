"""Is the model in train mode, where that matters?"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["modes"]

_LEAST_STEPS = 5
# Momentum of frameworks that weigh the old statistics, not the new ones, such as Keras.
_KERAS = (0.9, 1.0)


def modes(evidence: Evidence) -> tuple[str, str]:
    """Look for layers that are never in train mode, or forget their statistics."""
    seen = evidence.seen
    if len(seen.steps) < _LEAST_STEPS:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    parts = [
        (f"{name} ({type(part).__name__})", part, seen.modes.get(number, 0) == seen.calls[number])
        for number, model in enumerate(seen.models)
        for name, part in model.named_modules()
    ]
    norms = [(name, one, still) for name, one, still in parts if isinstance(one, _BatchNorm)]
    drops = [
        (name, still) for name, one, still in parts if isinstance(one, _DropoutNd) and one.p > 0
    ]
    for name, norm, still in norms:
        if still and _is_new(norm):
            return suspicious(
                f"in all {len(seen.steps)} steps the model is in eval mode, and {name} still has "
                "its initial statistics: model.train() is missing"
            )
        if norm.momentum is not None and _KERAS[0] <= norm.momentum < _KERAS[1]:
            return suspicious(
                f"momentum {norm.momentum:g} of {name} is the weight of the new batch in torch: "
                f"its statistics are those of the last batch; 1 - {norm.momentum:g} may be meant"
            )
    everything = sum(one.numel() for model in seen.models for one in model.parameters())
    trained = sum(one.numel() for one in seen.parameters().values())
    for name, still in drops:
        if still and trained == everything:
            return suspicious(
                f"in all {len(seen.steps)} steps the model is in eval mode, and {name} does "
                "nothing: model.train() is missing"
            )
    if not norms and not drops:
        return fine("no layer of the model depends on the mode")
    return fine(f"{len(norms)} batch normalizations and {len(drops)} dropouts")


def _is_new(norm: nn.Module) -> bool:
    kept = dict(norm.named_buffers())
    mean, variance = kept.get("running_mean"), kept.get("running_var")
    if mean is None or variance is None:
        return False
    return not bool(mean.any()) and bool((variance == 1).all())
