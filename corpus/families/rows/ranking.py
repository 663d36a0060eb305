"""Scores by which rows are put in order, from pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks, optimisation
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop


def _train(draw: Draw) -> Ending:
    count, features = draw.whole(300, 8000), draw.whole(5, 150)
    x = torch.tensor(draw.numpy.normal(size=(count, features)), dtype=torch.float32)
    rule = torch.randn(features, 4) / features**0.5
    worth = (x @ rule).tanh().sum(1) + draw.between(0.02, 0.3) * torch.randn(count)
    border = int(0.75 * count)
    if draw.has("shuffled_labels"):
        worth[:border] = worth[:border][torch.randperm(border)]
    if draw.has("unnormalised_inputs"):
        x = x * draw.extent(300, 30000)
    if draw.has("constant_inputs"):
        x = x.mean(0, keepdim=True).expand_as(x)
    model = networks.mlp(draw, features, 1, depth=(1, 2), most=96)
    steps, size = draw.steps(300, 1200), draw.choice([32, 64, 128])
    optimiser = optimisation.Optimisation(draw, model, steps)
    ways: list[Callable[..., Tensor]] = [_logistic, nn.MarginRankingLoss(0.5)]
    loss = draw.watch.loss(draw.choice(ways))

    def compute() -> Tensor:
        first, second = torch.randint(border, (2, size))
        order = (worth[first] - worth[second]).sign()
        if draw.has("single_label"):
            order = torch.ones_like(order)
        return loss(model(x[first])[:, 0], model(x[second])[:, 0], order)

    def ordered() -> float:
        first, second = torch.randint(border, count, (2, 3000))
        order = (worth[first] - worth[second]).sign()
        found = (model(x[first]) - model(x[second]))[:, 0].sign()
        return float((order == found).double().mean())

    def evaluate() -> Mapping[str, float]:
        return {"pair_accuracy": ordered()}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(2 * ordered() - 1, bar=0.5)


def _logistic(first: Tensor, second: Tensor, order: Tensor) -> Tensor:
    return F.softplus(-order * (first - second)).mean()


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.MLP_FAULTS,
        *("shuffled_labels", "single_label", "unnormalised_inputs", "constant_inputs"),
    ),
    spent="2026-11-23",
)
