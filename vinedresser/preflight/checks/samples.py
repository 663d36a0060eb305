"""Does a sample's output depend on its own input, and only on that?"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.observed import LEAST_SAMPLES
from vinedresser.preflight.program import CallEvent
from vinedresser.preflight.trials import NotRepeatable
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["other_samples", "own_input"]

_LEAST_STEPS = 5
# Of the differences between samples: what rounding explains, in units of the type's resolution,
# and what it does not.
_ROUNDINGS, _CERTAIN = 8.0, 0.05
# Share of the outputs by which those of networks with usual initial weights differ much more, and
# share of the last layer's gradient with which the first one learns nothing.
_HARDLY = 1e-3
_NOT_FINITE = "the outputs are not finite"


def own_input(evidence: Evidence) -> tuple[str, str]:
    """Compare the outputs of the samples of a batch, after the steps seen."""
    call = _only_call(evidence)
    if len(evidence.seen.steps) < _LEAST_STEPS:
        return unchecked(f"only {len(evidence.seen.steps)} steps were seen")
    values = _samples(evidence, call)
    size = len(values)
    if len(torch.unique(values.reshape(size, -1), dim=0)) < LEAST_SAMPLES:
        return unchecked(f"there are fewer than {LEAST_SAMPLES} different samples")
    model = copy.deepcopy(evidence.seen.models[call.model]).eval()
    output = _output(model, call, size, lambda _: values)
    spread = float((output - output[:1]).abs().max())
    scale = float(output.abs().max())
    if scale == 0 or not math.isfinite(scale):
        zero = "all outputs are 0, as of a last layer that begins with zeros"
        return unchecked(_NOT_FINITE if scale else zero)
    if spread <= _rounding(output, scale):
        return suspicious(
            f"after {len(evidence.seen.steps)} steps, the outputs of all {size} samples are the "
            f"same (to {spread:.2g} of {scale:.3g})"
        )
    said = f"the outputs of {size} samples differ by up to {spread:.3g}"
    if spread > _HARDLY * scale:
        return fine(said)
    return _hardly_different(f"{said} of {scale:.3g}", evidence, call.model)


def _hardly_different(said: str, evidence: Evidence, model: int) -> tuple[str, str]:
    """Judge outputs that hardly differ by the gradients of their model."""
    share = _first_gradient(evidence, model)
    if not 0 < share <= _HARDLY:
        arrives = ", but the gradient of the first layer does not vanish" if share > 0 else ""
        return unchecked(f"{said} only{arrives}")
    return suspicious(
        f"{said} after {len(evidence.seen.steps)} steps, and the gradient of the first layer is "
        f"{share:.1g} times that of the last: it vanishes"
    )


def _first_gradient(evidence: Evidence, model: int) -> float:
    """Return the ratio of the first weight's gradient to the last one's, root mean squares.

    NaN if there are no two weights.
    """
    weights = [
        float(one.double().square().mean().sqrt())
        for (number, _), one in evidence.trials.first.gradients.items()
        if number == model and one.dim() > 1
    ]
    return weights[0] / weights[-1] if len(weights) > 1 and weights[-1] else math.nan


def other_samples(evidence: Evidence) -> tuple[str, str]:
    """Compare the output of a sample with that in a batch with other samples, in eval mode."""
    call = _only_call(evidence)
    size, _ = _inputs(call)
    if why_not := _uncertain_samples(evidence, size):
        return unchecked(why_not)
    model = copy.deepcopy(evidence.seen.models[call.model]).eval()
    before = _output(model, call, size)
    # A half stays, and the other comes from it: a recurrence over the samples goes one way only.
    half = size // 2
    first = [*range(half), *(at % half for at in range(half, size))]
    last = [half + at % (size - half) for at in range(size)]
    last[half:] = range(half, size)
    change = max(
        float((_output(model, call, size, itemgetter(order))[kept] - before[kept]).abs().max())
        for order, kept in ((first, slice(half)), (last, slice(half, size)))
    )
    spread = float((before - before.mean(0)).abs().max())
    if not (math.isfinite(spread) and math.isfinite(change)):
        return unchecked(_NOT_FINITE)
    if spread <= _rounding(before, float(before.abs().max())):
        return unchecked("the outputs of all samples are the same")
    if change > _CERTAIN * spread:
        return suspicious(
            f"with other samples beside them, the outputs of half of {size} samples change by up "
            f"to {change:.3g}; between samples they differ by {spread:.3g}"
        )
    said = f"with other samples beside them, they change by {change:.2g} of {spread:.3g}"
    if change > _HARDLY * spread:
        return unchecked(f"{said}, which is more than rounding and less than is certain")
    return fine(said)


def _uncertain_samples(evidence: Evidence, size: int) -> str:
    """Return why the first dimension may not count independent samples; "" if it does."""
    if size < LEAST_SAMPLES // 2:
        return f"a batch has {size} sample{'s' * (size > 1)} only"
    function = evidence.trials.first.function
    compared = None if function is None else function.compared
    if (
        compared is None
        or compared.predictions.ndim > 2
        or len(compared.labels) != size
        or (compared.labels.ndim > 1 and compared.labels.shape != compared.predictions.shape)
    ):
        return "it is not certain which dimension counts the samples"
    if len({step.batch for step in evidence.seen.steps}) < 2:
        return "all batches are the same: the rows may belong together, as in a graph"
    return ""


def _rounding(output: Tensor, scale: float) -> float:
    """Return what rounding can change of outputs of a scale."""
    return _ROUNDINGS * torch.finfo(output.dtype).eps * scale


def _only_call(evidence: Evidence) -> CallEvent:
    calls = evidence.trials.first.program.calls
    if len(calls) != 1:
        raise NotRepeatable(f"a step calls its models {len(calls)} times")
    return calls[0]


def _inputs(call: CallEvent) -> tuple[int, Tensor]:
    """Return the number of samples, and the only tensor among the arguments of a call."""
    found = [tensor for _, tensor in leaves((call.args, call.kwargs))]
    if len(found) != 1 or found[0].dim() < 1:
        raise NotRepeatable(f"the model takes {len(found)} tensors")
    return len(found[0]), found[0]


def _samples(evidence: Evidence, call: CallEvent) -> Tensor:
    """Return the samples of the first batch, and of a small one those of the next ones, too."""
    size, values = _inputs(call)
    if size >= LEAST_SAMPLES or evidence.seen.rows != size:
        return values
    alike = [one for one in evidence.seen.samples if one.shape == values.shape]
    return torch.cat(alike) if alike else values


@torch.no_grad()
def _output(
    model: nn.Module,
    call: CallEvent,
    size: int,
    change: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Tensor:
    """Return the output [size, …] of a model for a call with other samples."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) else value

    result = model(*mapped(call.args, changed), **mapped(call.kwargs, changed))
    found = [tensor for _, tensor in leaves(result)]
    if len(found) != 1 or not found[0].is_floating_point() or len(found[0]) != size:
        raise NotRepeatable("the output is not one tensor with a row for each sample")
    return found[0]
