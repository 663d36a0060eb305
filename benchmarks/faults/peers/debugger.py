"""The built-in rules of Amazon SageMaker Debugger with their documented defaults.

Reimplemented from the conditions in its Developer Guide; the sources were never published. Rules
without a default threshold, rules that need user-specified tensors (labels, predictions, images,
tokens, another run), and rules about trees and the system are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.peers.evidence import Alarm, Evidence

__all__ = [
    "all_zero",
    "alarms_of",
    "inactive_share",
    "not_decreasing",
    "overfit",
    "unchanged",
    "update_ratio",
]

Array = NDArray[np.float64]
_RELU_LIMITS = (0.0, np.inf)
_LIMITS = {
    "ReLU": _RELU_LIMITS,
    "Tanh": (-9.4999, 9.4999),
    "Sigmoid": (-23.0, 16.99999),
}


def alarms_of(evidence: Evidence, every: int) -> list[Alarm]:
    """Return the alarms of its rules, in the order of the steps.

    Args:
        evidence: evidence of the training.
        every: steps between saved steps; the default of Debugger is 500.
    """
    parts = (_gradients, _initialisation, _weights, _activations, _losses)
    alarms = [alarm for part in parts for alarm in part(evidence, every)]
    return sorted(alarms, key=lambda alarm: alarm.step)


def _gradients(evidence: Evidence, every: int) -> Iterator[Alarm]:
    _, steps, means = evidence.gradients("abs_mean")
    _, _, nonfinite = evidence.gradients("nonfinite")
    _, _, zeros = evidence.gradients("zero_share")
    for place, step in enumerate(steps.tolist()):
        if step % every:
            continue
        if (means[place] < 1e-7).any():
            yield Alarm(step, "VanishingGradient")
        if nonfinite[place].any():
            yield Alarm(step, "ExplodingTensor")
        if all_zero(zeros[place]):
            yield Alarm(step, "AllZero")


def all_zero(shares: Array, threshold: float = 1.0) -> bool:
    """Return whether some tensor's share of zeros reaches the threshold (AllZero, 100 %)."""
    return bool((shares >= threshold).any())


def _initialisation(evidence: Evidence, every: int) -> Iterator[Alarm]:
    """PoorWeightInitialization: at step 0, which every interval saves."""
    assert every > 10, "it looks at ten steps"
    first = (evidence.run.tensor(n) for n in evidence.run.tensor_names(collection="weights"))
    weights = [np.asarray(view.value(step=0, mode="train"), np.float64) for view in first]
    variances = [float(weight.var()) for weight in weights if weight.ndim > 1]
    if variances and max(variances) > 10 * min(variances):
        yield Alarm(0, "PoorWeightInitialization: variances")
    low, high = (evidence.gradients(word)[2] for word in ("p5", "p95"))
    if len(low) and ((high[0] - low[0]) < 0.001).any():
        yield Alarm(0, "PoorWeightInitialization: gradients")


def _weights(evidence: Evidence, every: int) -> Iterator[Alarm]:
    """WeightUpdateRatio, UnchangedTensor, ExplodingTensor and AllZero of weights."""
    for name in evidence.run.tensor_names(collection="weights"):
        view = evidence.run.tensor(name)
        steps = [step for step in view.steps(mode="train") if step % every == 0]
        before: list[Array] = []
        for step in steps:
            now = np.asarray(view.value(step=step, mode="train"), np.float64)
            if not np.isfinite(now).all():
                yield Alarm(step, "ExplodingTensor")
                break
            if not now.any():
                yield Alarm(step, "AllZero")
            if before and not 1e-8 <= update_ratio(before[-1], now) <= 10:
                yield Alarm(step, "WeightUpdateRatio")
            before = [*before[-2:], now]
            if unchanged(before):
                yield Alarm(step, "UnchangedTensor")


def update_ratio(before: Array, now: Array) -> float:
    """Return the mean of abs(w - w_before) / (abs(w_before) + 1e-9) (WeightUpdateRatio)."""
    return float((np.abs(now - before) / (np.abs(before) + 1e-9)).mean())


def unchanged(values: list[Array]) -> bool:
    """Return whether three consecutive saved values are equal (UnchangedTensor)."""
    if len(values) < 3:
        return False
    return all(np.allclose(values[0], value, rtol=1e-5, atol=1e-8) for value in values[1:])


def _activations(evidence: Evidence, every: int) -> Iterator[Alarm]:
    """DeadRelu and SaturatedActivation."""
    for name in evidence.run.tensor_names(collection="activations"):
        kind = type(evidence.trained.model.get_submodule(name.partition("/")[2])).__name__
        if kind not in _LIMITS:
            continue
        view = evidence.run.tensor(name)
        for step in view.steps(mode="train"):
            if step % every:
                continue
            values = np.asarray(view.value(step=step, mode="train"), np.float64)
            limits = _RELU_LIMITS if kind == "ReLU" else _of_output(kind)
            if inactive_share(values, limits) > 0.5:
                yield Alarm(step, "DeadRelu" if kind == "ReLU" else "SaturatedActivation")


def inactive_share(values: Array, limits: tuple[float, float]) -> float:
    """Return the share of units that are strictly inside the limits for less than 1 % of the rows.

    Args:
        values: outputs, [B, units, ...].
        limits: limits outside of which a unit is inactive.
    """
    rows = values.reshape(len(values), -1)
    active = ((rows > limits[0]) & (rows < limits[1])).mean(axis=0)
    return float((active < 0.01).mean())


def _of_output(kind: str) -> tuple[float, float]:
    """Return the input limits, transformed by the activation."""
    low, high = np.array(_LIMITS[kind])
    if kind == "Tanh":
        return float(np.tanh(low)), float(np.tanh(high))
    return float(1 / (1 + np.exp(-low))), float(1 / (1 + np.exp(-high)))


def _losses(evidence: Evidence, every: int) -> Iterator[Alarm]:
    steps, losses = evidence.losses("train")
    kept = steps % every == 0
    steps, losses = steps[kept], losses[kept]
    for step, loss in zip(steps.tolist(), losses.tolist(), strict=True):
        if not np.isfinite(loss):
            yield Alarm(step, "ExplodingTensor")
            break
    for step in not_decreasing(steps, losses):
        yield Alarm(step, "LossNotDecreasing")
    eval_steps, eval_losses = evidence.losses("eval")
    yield from (
        Alarm(step, "Overfit") for step in overfit(steps, losses, eval_steps, eval_losses, every)
    )


def not_decreasing(steps: NDArray[np.int64], losses: Array, num_steps: int = 10) -> list[int]:
    """Return the steps whose loss is not below that of the nearest step 10 earlier."""
    found = []
    for place, step in enumerate(steps.tolist()):
        earlier = int(np.searchsorted(steps, step - num_steps, side="right")) - 1
        if earlier >= 0 and not losses[place] < losses[earlier]:
            found.append(step)
    return found


def overfit(
    steps: NDArray[np.int64],
    losses: Array,
    eval_steps: NDArray[np.int64],
    eval_losses: Array,
    every: int = 1,
) -> list[int]:
    """Return the steps at which evaluation exceeds training by 0.1 more than once in a row."""
    found, streak = [], 0
    for step, loss in zip(eval_steps.tolist(), eval_losses.tolist(), strict=True):
        place = int(np.searchsorted(steps, step, side="right")) - 1
        if step % every or place < 0:
            continue
        gap = (loss - losses[place]) / losses[place] if losses[place] else np.inf
        streak = streak + 1 if gap > 0.1 else 0
        if streak > 1:
            found.append(step)
    return found
