"""Do batches repeat, and do inputs and targets have a scale at which they are learned?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vinedresser.frameworks.nesting import mapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.trials import Trials
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["batches", "scales"]

_LEAST_STEPS = 5
# Root mean squares within which inputs need no further look.
_USUAL = (0.02, 20.0)
_STEPS, _SHARE = 150, 0.1
# Multiple of the first outputs from which targets are far away, and the share of a loss that falls
# by so little that tens of thousands of steps are needed.
_FAR, _STANDS = 1000.0, 0.99
_ERRORS = ("mean_squared_error", "mean_absolute_error")


def batches(evidence: Evidence) -> tuple[str, str]:
    """Compare the batches."""
    seen = evidence.seen
    if len(seen.steps) < _LEAST_STEPS:
        return unchecked(f"only {len(seen.steps)} steps were seen")
    different = len({step.batch for step in seen.steps})
    if different > 1:
        return fine(f"{different} different batches in {len(seen.steps)} steps")
    if len(seen.loaders) == 1 and _gives_such_batches(seen.loaders[0], evidence):
        return suspicious(
            f"all {len(seen.steps)} batches are the same, but the data loader has "
            f"{len(seen.loaders[0])} batches"
        )
    return unchecked("all batches are the same, as when each step sees all rows")


def scales(evidence: Evidence) -> tuple[str, str]:
    """Look whether the batch is learned with standardized inputs only, if they are not usual."""
    trials = evidence.trials
    call = trials.first.program.calls[0]
    inputs = [
        tensor for _, tensor in leaves((call.args, call.kwargs)) if tensor.is_floating_point()
    ]
    if not inputs:
        return unchecked("the model has no inputs of floating-point numbers")
    sizes = [_size(one) for one in inputs]
    said = "root mean square of the inputs " + ", ".join(f"{size:.3g}" for size in sizes)
    function = trials.first.function
    if function is not None and function.identity.loss in _ERRORS:
        given = function.compared
        target, output = (_size(torch.as_tensor(x)) for x in (given.labels, given.predictions))
        said += f", of the targets {target:.3g}"
        if target > _FAR * output and (why := _far_away(evidence)):
            return suspicious(f"{said}, of the first outputs {output:.3g}: {why}")
    if all(_USUAL[0] <= size <= _USUAL[1] or size == 0 for size in sizes):
        return fine(said)
    raw = trials.fit("script", 2 * _STEPS, 3 * _SHARE * evidence.seconds)
    scaled = _with_standard_inputs(trials, _SHARE * evidence.seconds)
    losses = raw.losses[: len(scaled)]
    if len(losses) < _STEPS // 2:
        return unchecked(f"{said}; only {len(losses)} steps to compare with standardized inputs")
    if min(losses[-10:]) > 0.9 * raw.start > 0:
        end = max(scaled[-10:])
        if end < 0.5 * min(losses[-10:]):
            return suspicious(
                f"{said}: after {len(losses)} steps on one batch the loss is {losses[-1]:.4g}, "
                f"and with standardized inputs {scaled[-1]:.4g}"
            )
    return fine(f"{said}; the batch is not learned better with standardized inputs")


def _far_away(evidence: Evidence) -> str:
    """Return why targets are so large that outputs do not come near them; "" if they may."""
    fit = evidence.trials.fit("script", 2 * _STEPS, 3 * _SHARE * evidence.seconds)
    base = evidence.loss_of_constants()
    stands = fit.finite and len(fit.losses) >= _STEPS and fit.end > _STANDS * fit.start
    if base is None or not stands or fit.end < 3 * base or not evidence.seen.constant_rates:
        return ""
    return (
        f"after {len(fit.losses)} steps on one batch, the loss went from {fit.start:.4g} to "
        f"{fit.end:.4g}; outputs that ignore the inputs reach {base:.4g}"
    )


def _size(values: Tensor) -> float:
    """Return the root mean square of some values."""
    return float(values.double().square().mean().sqrt())


def _with_standard_inputs(trials: Trials, seconds: float) -> list[float]:
    def standard(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() < 2:
            return value
        axes = [0] if value.dim() == 2 else [0, *range(2, value.dim())]
        spread = value.std(axes, keepdim=True)
        return (value - value.mean(axes, keepdim=True)) / torch.where(spread > 0, spread, 1.0)

    models: list[nn.Module]
    models, optimizer = trials.copies()
    return trials.train(
        models,
        optimizer,
        _STEPS,
        seconds,
        transform=lambda args, kwargs: (mapped(args, standard), mapped(kwargs, standard)),
    )


def _gives_such_batches(loader: DataLoader[Any], evidence: Evidence) -> bool:
    """Return whether a loader has several batches of as many samples as the model is given.

    A training on all rows at once may have a loader for its evaluations.
    """
    try:
        several = len(loader) > 1
    except TypeError:
        # An iterable data set has no length.
        return False
    first = evidence.seen.first
    calls = first.program.calls if first is not None else []
    tensors = (one for call in calls for _, one in leaves((call.args, call.kwargs)) if one.dim())
    given = next(tensors, None)
    return several and given is not None and len(given) == loader.batch_size
