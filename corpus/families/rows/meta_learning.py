"""Weights from which a few steps lead to any curve of a kind: model-agnostic meta-learning.

After Finn et al., "Model-agnostic meta-learning for fast adaptation of deep networks", ICML 2017.

Shape legend: B tasks, N points of a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.optimisation import Optimisation

_INNER = 3

Weights = dict[str, Tensor]


def _train(draw: Draw) -> Ending:
    width = draw.choice([32, 40])
    hidden = (nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
    model = nn.Sequential(*hidden, nn.Linear(width, 1))
    networks.spoil(draw, model)
    rate = draw.between(0.03, 0.06)
    if draw.has("inner_rate"):
        rate *= draw.extent(1e-5, 1e-3)
    steps, tasks = draw.steps(400, 600), draw.choice([8, 16])
    optimiser = Optimisation(
        draw, model, steps, scale=1.2, kinds=("adam", "adamw"), accumulates=False
    )
    draw.watch.begin(model, optimiser.optimizer)

    def error(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (functional_call(model, weights, (x,)) - y).square().mean()
        return found

    def adapted(weights: Weights, x: Tensor, y: Tensor, *, sign: float = 1.0) -> Weights:
        for _ in range(_INNER):
            slope = grad(error)(weights, x, y)
            weights = {name: one - sign * rate * slope[name] for name, one in weights.items()}
        return weights

    def of_task(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        """Return the error of the second half of the points, after steps with the first half."""
        half = x.shape[0] // 2
        if draw.has("adaptation_skipped"):
            return error(weights, x[half:], y[half:])
        sign = -1.0 if draw.has("term_wrong_sign") else 1.0
        return error(adapted(weights, x[:half], y[:half], sign=sign), x[half:], y[half:])

    def compute() -> Tensor:
        x, y = _spoilt(draw, *_curves(tasks))
        weights: Weights = dict(model.named_parameters())
        return vmap(of_task, in_dims=(None, 0, 0))(weights, x, y).mean()

    every = steps // 5
    for step in range(steps):
        optimiser.step(compute)
        if step % every == every - 1:
            with draw.watch.evaluating():
                draw.watch.metric("query_mse", _after(model, adapted)[0])
    found, trivial = _after(model, adapted)
    return Ending(1 - found / trivial, bar=0.35)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return tasks with the drawn fault of their values, if there is one."""
    if draw.has("misaligned_targets"):
        # Each task is asked for the curve of another one.
        y = torch.cat([y[:, :10], y[:, 10:].roll(1, dims=0)], 1)
    if draw.has("shuffled_labels"):
        y = y.gather(1, torch.rand(y.shape).argsort(1))
    return x, y


def _after(
    model: nn.Module, adapted: Callable[[Weights, Tensor, Tensor], Weights]
) -> tuple[float, float]:
    """Return the mean squared error of new curves after adaptation, and that of the mean curve."""
    x, y = _curves(200)
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def predicted(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = functional_call(model, adapted(weights, x[:10], y[:10]), (x[10:],))
        return found

    found = vmap(predicted)(x, y).detach()
    # The height is 1.25 on average, and the mean of the sine over all phases is 2 / pi cos(x).
    mean = 1.25 * 2 / math.pi * torch.cos(3 * x[:, 10:])
    wanted = y[:, 10:]
    return float((found - wanted).square().mean()), float((mean - wanted).square().mean())


def _curves(tasks: int) -> tuple[Tensor, Tensor]:
    """Return places and values float32 [B, N, 1] of sinusoids with other heights and phases."""
    x = 6 * torch.rand(tasks, 20, 1) - 3
    height, phase = 0.5 + 1.5 * torch.rand(tasks, 1, 1), math.pi * torch.rand(tasks, 1, 1)
    return x / 3, height * torch.sin(x + phase)


FAMILY = Family(
    _train,
    (
        *("adaptation_skipped", "misaligned_targets", "shuffled_labels", "term_wrong_sign"),
        *("inner_rate", "lr_too_low", "scheduler_to_zero", "zero_init", "wrong_parameters"),
        "detached_graph",
    ),
    spent="2026-11-26",
)
