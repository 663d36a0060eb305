"""Counts of events, and times until one: Poisson regression and Cox's proportional hazards.

After Cox, "Regression models and life-tables", 1972.

Shape legend: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import INPUT_FAULTS, batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.losses import Loss
from corpus.optimisation import Optimisation

# Faults that only one of the two losses can have.
_OF_COUNTS = ("wrong_loss",)
_OF_TIMES = ("censoring_inverted", "risk_set_reversed")


def _train(draw: Draw) -> Ending:
    timed = draw.concerns(*_OF_TIMES) or (draw.chance(0.5) and not draw.concerns(*_OF_COUNTS))
    count = draw.choice([1500, 3000, 6000])
    x, y = _rows(draw, count, timed=timed)
    data = rows_of(draw, x.numpy(), y.numpy())
    model = networks.mlp(draw, x.shape[1], 1, depth=(1, 3), most=96)
    steps = draw.steps(200, 700)
    optimiser = Optimisation(draw, model, steps, kinds=("adam", "adamw", "rmsprop"))
    loss = draw.watch.loss(_partial_likelihood(draw) if timed else _poisson(draw))
    source = batches(draw, data.x, data.y, draw.choice([64, 128, 256]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    measure = _concordance if timed else _explained_deviance

    def evaluate() -> Mapping[str, float]:
        value = measure(model(data.x_val), data.y_val)
        return {"concordance": (value + 1) / 2} if timed else {"d2": value}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(measure(model(data.x_val), data.y_val), bar=0.4)


def _rows(draw: Draw, count: int, *, timed: bool) -> tuple[Tensor, Tensor]:
    """Return inputs [N, F], and targets [N, 1] (counts) or [N, 2] (time, whether it was seen)."""
    features = draw.choice([5, 8, 12])
    x = torch.randn(count, features)
    rate = x @ torch.randn(features, 1) / features**0.5
    rate = rate + 0.5 * (x[:, :1] * x[:, 1:2])
    if not timed:
        return x, torch.poisson((rate + draw.between(0.5, 2)).clamp(max=4.0).exp())
    time = -torch.rand(count, 1).clamp(min=1e-6).log() / (2.5 * rate).exp()
    end = time[torch.randperm(count)] * draw.between(1, 4)
    return x, torch.cat([torch.minimum(time, end), (time <= end).float()], 1)


def _poisson(draw: Draw) -> Loss:
    """Return a loss of log-rates [N, 1] and counts [N, 1]."""
    usual: list[Loss] = [nn.PoissonNLLLoss(), F.poisson_nll_loss, _poisson_by_hand]
    core = draw.choice(usual)
    return _poisson_of_rates if draw.has("wrong_loss") else core


def _poisson_of_rates(output: Tensor, y: Tensor) -> Tensor:
    """Return the loss of rates, not of their logarithms."""
    return F.poisson_nll_loss(output.clamp(min=1e-6), y, log_input=False)


def _poisson_by_hand(output: Tensor, y: Tensor) -> Tensor:
    return (output.exp() - y * output).mean()


def _partial_likelihood(draw: Draw) -> Loss:
    """Return Cox's loss of log-hazards [N, 1] and of times and events [N, 2]."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        order = y[:, 0].argsort(descending=not draw.has("risk_set_reversed"))
        hazard, seen = output[order, 0], y[order, 1]
        if draw.has("censoring_inverted"):
            seen = 1 - seen
        at_risk = hazard.logcumsumexp(0)
        return ((at_risk - hazard) * seen).sum() / seen.sum().clamp(min=1)

    return loss


def _explained_deviance(output: Tensor, y: Tensor) -> float:
    """Return the share of the Poisson deviance that log-rates explain."""
    output, y = output.double(), y.double()
    best = torch.xlogy(y, y) - y
    left = best - (y * output - output.exp())
    trivial = best - (y * y.mean().log() - y.mean())
    return float(1 - left.sum() / trivial.sum())


def _concordance(output: Tensor, y: Tensor) -> float:
    """Return 2 C - 1 of Harrell's concordance C of log-hazards, by the pairs that can be told."""
    time, seen = y[:, 0], y[:, 1] > 0.5
    earlier = (time[:, None] < time[None, :]) & seen[:, None]
    ahead = torch.sign(output - output.T)
    return float(ahead[earlier].double().mean())


FAMILY = Family(
    _train,
    (
        *_OF_COUNTS,
        *_OF_TIMES,
        *(one for one in INPUT_FAULTS if one != "duplicated_rows"),
        *("shuffled_labels", "wrong_sign", "lr_too_high", "lr_too_low", "late_jump"),
        *("vanishing", "zero_init", "not_in_optimizer"),
    ),
    spent="2026-11-25",
)
