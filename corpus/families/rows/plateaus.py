"""Trainings that learn nothing for long, and then do: XOR, parity, deep narrow networks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


def _train(draw: Draw) -> Ending:
    kind = draw.choice(["xor", "parity", "spiral", "modular"])
    x, y = _DATA[kind](draw)
    model, steps, scale, kinds = _plan(draw, kind, x.shape[1])
    networks.spoil(draw, model)
    optimiser = Optimisation(draw, model, steps, scale=scale, kinds=kinds, accumulates=False)
    core: nn.Module = draw.choice([nn.BCEWithLogitsLoss(), nn.MSELoss()])
    if kind == "modular":
        core = nn.CrossEntropyLoss()
    loss = draw.watch.loss(core)
    size = len(x) if kind in ("xor", "modular") or draw.chance(0.5) else 64

    def compute() -> Tensor:
        chosen = torch.randperm(len(x))[:size]
        return loss(model(x[chosen]), y[chosen])

    def evaluate() -> Mapping[str, float]:
        return {"accuracy": _right(model(x), y, core)}

    evaluates = draw.chance(0.5)
    if kind != "modular":
        y = y[:, None].float()
    chosen = evaluate if evaluates else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        right = _right(model(x), y, core)
    chance = 0.0 if kind == "modular" else 0.5
    return Ending((right - chance) / (1 - chance), bar=0.95, margin=0.3)


def _right(output: Tensor, y: Tensor, loss: nn.Module) -> float:
    """Return the share of rows that are right."""
    if isinstance(loss, nn.CrossEntropyLoss):
        return float((output.argmax(dim=1) == y).double().mean())
    border = 0.5 if isinstance(loss, nn.MSELoss) else 0.0
    return float(((output > border) == (y > 0.5)).double().mean())


def _plan(draw: Draw, kind: str, inputs: int) -> tuple[nn.Sequential, int, float, tuple[str, ...]]:
    """Return model, steps, factor of the learning rate, and optimizers."""
    if kind == "xor":
        width = draw.choice([4, 4, 8])
        active = draw.choice([nn.Tanh, nn.Sigmoid])
        model = nn.Sequential(nn.Linear(inputs, width), active(), nn.Linear(width, 1))
        slow = active is nn.Sigmoid
        return model, draw.steps(3000, 6000), 10.0 if slow else 4.0, ("sgd", "momentum")
    if kind == "parity":
        width = draw.whole(16, 64)
        model = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, 1))
        return model, draw.steps(1500, 4000), 2.0, ("momentum", "nesterov", "adam")
    if kind == "spiral":
        width, layers = draw.whole(8, 14), list[nn.Module]()
        for _ in range(draw.whole(4, 7)):
            layers += [nn.Linear(inputs, width), nn.Tanh()]
            inputs = width
        model = nn.Sequential(*layers, nn.Linear(inputs, 1))
        return model, draw.steps(1500, 4000), 1.5, ("adam", "adamw", "momentum")
    width = draw.whole(48, 128)
    model = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, inputs // 2))
    return model, draw.steps(800, 2500), 1.5, ("adam", "adamw")


def _xor(_: Draw) -> tuple[Tensor, Tensor]:
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    return x, (x.sum(1) == 1).long()


def _parity(draw: Draw) -> tuple[Tensor, Tensor]:
    bits = draw.choice([3, 4, 5])
    x = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * bits)
    return x, (x.prod(1) > 0).long()


def _spiral(draw: Draw) -> tuple[Tensor, Tensor]:
    count, turns = draw.whole(100, 400), draw.between(0.6, 1.2)
    radius = np.sqrt(draw.numpy.uniform(0.02, 1, count))
    arm = np.arange(count) % 2
    angle = 2 * np.pi * turns * radius + np.pi * arm
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return torch.tensor(2 * x, dtype=torch.float32), torch.tensor(arm)


def _modular(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return pairs of numbers, one-hot, and their sum modulo a prime."""
    prime = draw.choice([7, 11, 13, 17])
    pairs = torch.cartesian_prod(torch.arange(prime), torch.arange(prime))
    x = nn.functional.one_hot(pairs, prime).flatten(1).float()
    return x, pairs.sum(1) % prime


_DATA = {"xor": _xor, "parity": _parity, "spiral": _spiral, "modular": _modular}
# Weight decay and small initial weights are not among the faults: they are what makes a plateau.
FAMILY = Family(
    _train,
    (
        *("lr_too_high", "lr_too_low", "late_jump", "scheduler_to_zero", "scheduler_per_batch"),
        *("wrong_parameters", "frozen_layers", "wrong_sign", "weight_decay_too_high"),
        *("zero_init", "detached_graph"),
    ),
    spent="2026-11-23",
)
