"""Optimizers, schedules and the rest of a training step, drawn at random."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn

from corpus.draw import Draw

__all__ = ["FAULTS", "Optimisation"]

# Faults that every training with an `Optimisation` can carry.
FAULTS = (
    *("lr_too_high", "lr_too_low", "late_jump", "scheduler_to_zero", "scheduler_per_batch"),
    *("wrong_parameters", "not_in_optimizer", "frozen_layers", "missing_zero_grad", "wrong_sign"),
    *("weight_decay_too_high", "momentum_too_high", "adam_epsilon", "adam_betas"),
    *("clip_too_small", "half_underflow", "half_overflow"),
)
_ADAMS = ("adam", "adamw")
# Optimizers that divide the gradient, with its weight decay, by its size.
_SCALED = ("adam", "rmsprop", "adagrad")
_RATES = {
    "sgd": (0.03, 0.15),
    "momentum": (0.005, 0.03),
    "nesterov": (0.005, 0.03),
    "adam": (1e-3, 4e-3),
    "adamw": (1e-3, 4e-3),
    "rmsprop": (5e-4, 2e-3),
    "adagrad": (0.01, 0.05),
}
# Optimizers with which a fault does harm.
_WITH: dict[str, Sequence[str]] = {
    "clip_too_small": ("sgd", "momentum", "nesterov"),
    "missing_zero_grad": ("sgd", "momentum", "adam"),
    "momentum_too_high": ("momentum", "nesterov"),
    "adam_epsilon": _ADAMS,
    "adam_betas": _ADAMS,
    "half_underflow": ("sgd", "momentum"),
}


# Bounds of a fixed loss scale with which gradients in half precision become zero, or infinite.
_LOSS_SCALES: dict[str, tuple[float, float]] = {
    "half_underflow": (1e-8, 1e-6),
    "half_overflow": (1e6, 1e9),
}


class _Common(TypedDict):
    """Arguments that all optimizers have."""

    lr: float
    weight_decay: float
    maximize: bool


class Optimisation:
    """Optimizer, schedule, accumulation and clipping of a training.

    Args:
        draw: choices of the training.
        model: model to train.
        steps: number of optimizer steps.
        scale: factor of the usual learning rates.
        kinds: optimizers to draw from.
        groups: parameters to train; None: all of the model.
        accumulates: whether gradients may be accumulated over micro-batches.

    Attributes:
        kind: kind of the optimizer.
        rate: highest learning rate.
        optimizer: the optimizer.
    """

    def __init__(
        self,
        draw: Draw,
        model: nn.Module,
        steps: int,
        *,
        scale: float = 1.0,
        kinds: Sequence[str] = tuple(_RATES),
        groups: Sequence[nn.Parameter] | None = None,
        accumulates: bool = True,
    ) -> None:
        self._draw = draw
        kinds = [one for one in kinds if one in draw.by_subject(_WITH, kinds)] or kinds
        self.kind = draw.choice(kinds)
        self.rate = scale * draw.between(*_RATES[self.kind])
        if draw.has("lr_too_high"):
            self.rate *= draw.extent(10, 1000)
        if draw.has("lr_too_low"):
            self.rate *= draw.extent(1e-5, 1e-3)
        self.parameters = _parameters(draw, model, groups)
        self.optimizer = self._optimizer(draw.choice([0.0, 0.0, 1e-4, 1e-2]))
        factor = _schedule(draw, steps)
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        accumulate = draw.choice([1, 1, 1, 1, 2, 4])
        self._accumulate = draw.accumulated = accumulate if accumulates else 1
        self._clip = draw.choice([0.0, 0.0, 1.0, 5.0])
        if draw.has("clip_too_small"):
            self._clip = draw.extent(1e-6, 1e-4)
        self._clear_first = draw.chance(0.6)
        self._minus = draw.has("wrong_sign") and not self.optimizer.param_groups[0].get("maximize")
        loss_scales = draw.by_fault(_LOSS_SCALES, None)
        if loss_scales:
            scale = draw.extent(*loss_scales)
            for one in self.parameters:
                if one.requires_grad:
                    one.register_hook(lambda grad: (grad * scale).half().float() / scale)

    def step(self, compute: Callable[[], Tensor]) -> None:
        """Take one step.

        Args:
            compute: return the loss of the next batch.
        """
        if self._clear_first:
            self._clear()
        for _ in range(self._accumulate):
            loss = compute()
            if self._minus:
                loss = -loss
            (loss if self._accumulate == 1 else loss / self._accumulate).backward()
        if self._clip:
            nn.utils.clip_grad_norm_(self.parameters, self._clip)
        self.optimizer.step()
        self._scheduler.step()
        if not self._clear_first:
            self._clear()

    def _clear(self) -> None:
        if not self._draw.has("missing_zero_grad"):
            self.optimizer.zero_grad()

    def _optimizer(self, decay: float) -> torch.optim.Optimizer:
        draw, rate, made = self._draw, self.rate, self.parameters
        if draw.has("weight_decay_too_high"):
            decay = draw.extent(0.03, 0.3) / rate if self.kind not in _SCALED else 10.0
        maximize = draw.has("wrong_sign") and draw.amount.random() < 0.4
        optim, common = torch.optim, _Common(lr=rate, weight_decay=decay, maximize=maximize)
        if self.kind in _ADAMS:
            adam: type[torch.optim.Adam] = optim.Adam if self.kind == "adam" else optim.AdamW
            betas = (0.9, draw.choice([0.999, 0.999, 0.95]))
            if draw.has("adam_betas"):
                betas = (0.999, 0.5)
            epsilon = draw.extent(1e2, 1e4) if draw.has("adam_epsilon") else 1e-8
            return adam(made, **common, betas=betas, eps=epsilon)
        if self.kind == "rmsprop":
            return optim.RMSprop(made, **common)
        if self.kind == "adagrad":
            return optim.Adagrad(made, **common)
        momentum = 0.0 if self.kind == "sgd" else 0.9
        if draw.has("momentum_too_high"):
            momentum = draw.amount.choice([0.998, 0.9995])
        nesterov = self.kind == "nesterov"
        return optim.SGD(made, **common, momentum=momentum, nesterov=nesterov)


def _parameters(
    draw: Draw, model: nn.Module, groups: Sequence[nn.Parameter] | None
) -> list[nn.Parameter]:
    """Return the parameters that the optimizer gets."""
    trained = list(model.parameters()) if groups is None else list(groups)
    if draw.has("wrong_parameters"):
        return list(copy.deepcopy(model).parameters())
    kept = trained[:1] if draw.amount.random() < 0.5 else trained[-1:]
    if draw.has("frozen_layers"):
        for one in trained:
            one.requires_grad_(any(one is other for other in kept))
    if draw.has("not_in_optimizer"):
        return kept
    return trained


def _schedule(draw: Draw, steps: int) -> Callable[[int], float]:
    """Return the factor of the learning rate at each step."""
    schedules = ["constant", "constant", "cosine", "warm-up", "step", "cyclic", "exponential"]
    name = draw.choice(schedules)
    if draw.concerns("scheduler_per_batch"):
        name = "exponential"
    if draw.has("scheduler_to_zero"):
        end = draw.extent(0.01, 0.05) * steps
        return lambda step: max(0.0, 1 - step / end)
    if draw.has("scheduler_per_batch"):
        return lambda step: 0.8**step
    jump = draw.extent(30, 1000) if draw.has("late_jump") else 1.0
    after = draw.amount.uniform(0.3, 0.6) * steps
    usual = _FACTORS[name]
    return lambda step: usual(step / steps) * (jump if step > after else 1.0)


_FACTORS: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda share: 0.02 + 0.98 * (1 + math.cos(math.pi * min(share, 1))) / 2,
    # From zero: the first step changes nothing.
    "warm-up": lambda share: min(1.0, share / 0.1),
    "step": lambda share: 1.0 if share < 0.6 else 0.2 if share < 0.85 else 0.04,
    "cyclic": lambda share: 0.1 + 0.9 * (1 - abs((share * 6) % 2 - 1)),
    "exponential": lambda share: 0.8 ** int(share * 10),
}
