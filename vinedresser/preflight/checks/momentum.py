"""Do the batch normalizations remember more than the last batch?"""

from __future__ import annotations

from torch.nn.modules.batchnorm import _BatchNorm

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.verdict import fine, suspicious, unchecked

# Momentum of frameworks that weigh the old statistics, not the new ones, such as Keras.
_KERAS = (0.9, 1.0)


def momentum(evidence: Evidence) -> tuple[str, str]:
    """Look for batch normalizations with a momentum that is meant for another framework."""
    norms = [
        (name, part)
        for model in evidence.seen.models
        for name, part in model.named_modules()
        if isinstance(part, _BatchNorm)
    ]
    if not norms:
        return unchecked("no batch normalization was seen")
    for name, norm in norms:
        if norm.momentum is not None and _KERAS[0] <= norm.momentum < _KERAS[1]:
            return suspicious(
                f"momentum {norm.momentum:g} of {name} ({type(norm).__name__}) is the weight of "
                "the new batch in torch: its statistics are those of the last batch; "
                f"1 - {norm.momentum:g} may be meant"
            )
    return fine(f"{len(norms)} batch normalization{'s' if len(norms) > 1 else ''}")
