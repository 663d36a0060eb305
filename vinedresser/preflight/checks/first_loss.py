"""Does the loss start where it should, and does it get what it expects?"""

from __future__ import annotations

import torch

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.checks.baseline import chance_loss, first_loss_function, is_binary
from vinedresser.preflight.observed import Compared
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["first_loss", "loss_arguments"]

# Multiple of the loss of equal probabilities that no usual initialization reaches, and the least
# distance: the right class has e^-5 of its share.
_MULTIPLE, _DISTANCE = 3.0, 5.0
_ROUNDING = 1e-4


def first_loss(evidence: Evidence) -> tuple[str, str]:
    """Compare the first loss with that of equal probabilities, ln C for C classes."""
    function = first_loss_function(evidence.seen)
    if function is None:
        return unchecked("the loss is not a single loss function of torch with its defaults")
    wanted, found = chance_loss(function), float(function.value)
    if wanted is None:
        return unchecked(f"{function.name} has no value to start at")
    said = f"{found:.4g}; equal probabilities give {wanted:.4g}"
    if found > _MULTIPLE * wanted and found > wanted + _DISTANCE:
        return suspicious(f"{said}: the outputs are far too large")
    return fine(said)


def loss_arguments(evidence: Evidence) -> tuple[str, str]:
    """Look for outputs and targets that a loss function does not expect."""
    by_name: dict[str, list[Compared]] = {}
    for one in evidence.seen.compared():
        by_name.setdefault(one.name, []).append(one)
    if not by_name:
        return unchecked("no loss function of torch was seen")
    for found in by_name.values():
        for look in (_shapes, _probabilities, _not_logarithms, _squashed, _targets):
            fault = look(found)
            if fault:
                return suspicious(f"{found[0].name}: {fault}")
    return fine(", ".join(f"{name} in {len(one)} steps" for name, one in by_name.items()))


def _shapes(found: list[Compared]) -> str:
    """Two shapes that are broadcast to a third one."""
    one = found[0]
    if one.name not in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        return ""
    output, target = one.output.shape, one.target.shape
    wide = torch.broadcast_shapes(output, target)
    if wide in (output, target):
        return ""
    return f"outputs {list(output)} and targets {list(target)} are compared as {list(wide)}"


def _probabilities(found: list[Compared]) -> str:
    """Probabilities where logits are expected."""
    if found[0].name != "cross_entropy":
        return ""
    for one in found:
        out = one.output.double()
        sums = out.sum(1) if out.dim() > 1 else out.new_full((1,), 2.0)
        if float(out.min()) < 0 or float((sums - 1).abs().max()) > _ROUNDING:
            return ""
    return "the outputs are probabilities that sum to 1; it expects logits, without a softmax"


def _not_logarithms(found: list[Compared]) -> str:
    """Outputs whose exponentials do not sum to 1 where logarithms are expected."""
    if found[0].name != "nll_loss":
        return ""
    for one in found:
        sums = one.output.double().exp().sum(1) if one.output.dim() > 1 else None
        if sums is None or float((sums - 1).abs().min()) < 0.01:
            return ""
    return "it expects logarithms of probabilities, from a log_softmax"


def _squashed(found: list[Compared]) -> str:
    """Probabilities of a sigmoid where logits are expected."""
    if found[0].name != "binary_cross_entropy_with_logits":
        return ""
    if not all(one.origin == "SigmoidBackward0" for one in found):
        return ""
    return "the outputs come from a sigmoid; it expects logits"


def _targets(found: list[Compared]) -> str:
    """Binary targets outside of 0 to 1."""
    if not found[0].name.startswith("binary_cross_entropy"):
        return ""
    for one in found:
        if (
            not is_binary(one.target)
            and not 0 <= float(one.target.min()) <= float(one.target.max()) <= 1
        ):
            least, most = float(one.target.min()), float(one.target.max())
            return f"targets from {least:g} to {most:g}; it expects 0 to 1"
    return ""
