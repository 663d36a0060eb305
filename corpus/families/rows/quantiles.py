"""Quantiles of a quantity whose spread depends on the inputs, by the pinball loss.

After Koenker and Bassett, "Regression quantiles", 1978.

Shape legend: N rows, F features, Q quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from corpus import networks
from corpus.data.rows import batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation

_LEVELS = torch.tensor([0.1, 0.5, 0.9])


def _train(draw: Draw) -> Ending:
    features = draw.choice([2, 4, 6])
    x = draw.numpy.normal(size=(draw.whole(800, 8000), features))
    spread = 0.2 + 0.8 / (1 + draw.numpy.random(1) + (x[:, 1:2] + 1) ** 2)
    y = x[:, :1] + 0.5 * (x[:, :1] > 0) * x[:, 1:2] + spread * draw.numpy.normal(size=(len(x), 1))
    y = (y - y.mean()) / y.std() * (1.0 if draw.chance(0.6) else draw.between(0.2, 5))
    data = rows_of(draw, x, y)
    model = networks.mlp(draw, features, 3, depth=(1, 3), most=64)
    steps = draw.steps(300, 900)
    optimiser = Optimisation(draw, model, steps, scale=1.0, kinds=("adam", "adamw", "rmsprop"))
    levels = 1 - _LEVELS if draw.has("levels_swapped") else _LEVELS

    def pinball(output: Tensor, wanted: Tensor) -> Tensor:
        if draw.has("wrong_broadcast"):
            wanted = wanted.T[:, :, None]
            output = output[:, None]
        gap = wanted - output
        if draw.has("term_wrong_sign"):
            return (levels * gap - (1 - levels) * gap).mean()
        return torch.maximum(levels * gap, (levels - 1) * gap).mean()

    loss = draw.watch.loss(pinball)
    source = batches(draw, data.x, data.y, draw.choice([32, 64, 128]))

    def compute() -> Tensor:
        rows, wanted = next(source)
        return loss(model(rows), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        inside = (data.y_val > output[:, :1]) & (data.y_val < output[:, 2:])
        return {"coverage_80": float(inside.double().mean())}

    chosen = evaluate if draw.chance(0.5) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    trivial = torch.quantile(data.y_val, _LEVELS)[None]
    with evaluation(draw, model):
        reached = _error(model(data.x_val), data.y_val)
    return Ending(1 - reached / _error(trivial, data.y_val), bar=0.3)


def _error(output: Tensor, y: Tensor) -> float:
    """Return the pinball loss of quantiles [N, Q] and targets [N, 1]."""
    gap = (y - output).double()
    return float(torch.maximum(_LEVELS * gap, (_LEVELS - 1) * gap).mean())


FAMILY = Family(
    _train,
    (
        *("levels_swapped", "term_wrong_sign", "wrong_broadcast", "shuffled_labels"),
        *("unnormalised_targets", "unnormalised_inputs", "ruinous_augmentation", "nan_inputs"),
        *("lr_too_low", "detached_graph", "dropout_too_high"),
    ),
    spent="2026-11-26",
)
