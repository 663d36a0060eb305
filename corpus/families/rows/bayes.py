"""Weights with a mean and a spread of their own, learned from few rows.

After Blundell et al., "Weight uncertainty in neural networks", ICML 2015.

Shape legend: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.rows import rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained, run_loop
from corpus.optimisation import Optimisation


class UncertainLinear(nn.Module):
    """A dense layer whose weights are drawn anew at each call in training mode."""

    def __init__(self, inputs: int, outputs: int, spread: float) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.rho = nn.Parameter(torch.full((outputs, inputs), spread))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs [N, outputs] of inputs [N, inputs]."""
        weight: Tensor = self.mean
        if self.training:
            weight = weight + F.softplus(self.rho) * torch.randn_like(weight)
        return F.linear(x, weight, self.bias)

    def divergence(self) -> Tensor:
        """Return the divergence of the weights from a normal prior, in nats."""
        spread = F.softplus(self.rho)
        return (0.5 * (self.mean.square() + spread.square() - 1) - spread.log()).sum()


def _train(draw: Draw) -> Ending:
    count, features = draw.choice([40, 80, 200]), draw.choice([1, 2, 3])
    x = 3 * torch.rand(count + 300, features) - 1.5
    y = (2 * x).sin().sum(1, keepdim=True) / features**0.5
    y = y + draw.between(0.05, 0.2) * torch.randn_like(y)
    data = rows_of(draw, x.numpy(), y.numpy(), share=count / (count + 300))
    spread, width = draw.by_fault({"large_init": 4.0}, -5.0), draw.choice([24, 40])
    model = nn.Sequential(
        *(UncertainLinear(features, width, spread), nn.Tanh()),
        *(UncertainLinear(width, width, spread), nn.Tanh()),
        UncertainLinear(width, 1, spread),
    )
    layers = [one for one in model if isinstance(one, UncertainLinear)]
    steps = draw.steps(500, 1000)
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "adamw"), accumulates=False
    )
    noise, size = 0.2, min(count, 32)
    weight = draw.by_fault({"term_wrong_sign": -1.0, "divergence_unscaled": float(count)}, 1.0)

    def fit(output: Tensor, wanted: Tensor) -> Tensor:
        if draw.has("wrong_broadcast"):
            wanted = wanted[:, 0]
        return (output - wanted).square().mean() / (2 * noise**2)

    loss = draw.watch.loss(fit)

    def compute() -> Tensor:
        rows = torch.randint(len(data.x), (size,))
        if draw.has("same_batch"):
            rows = torch.arange(4)
        apart = torch.stack([one.divergence() for one in layers]).sum()
        return loss(model(data.x[rows]), data.y[rows]) + weight * apart / count

    def evaluate() -> Mapping[str, float]:
        return {"nrmse": float((model(data.x_val) - data.y_val).square().mean().sqrt())}

    chosen = evaluate if draw.chance(0.4) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    model.train()
    with torch.no_grad():
        sampled = torch.stack([model(data.x_val) for _ in range(30)]).mean(0)
    return Ending(explained(sampled.nan_to_num(1e6, 1e6, -1e6), data.y_val), bar=0.5)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "divergence_unscaled", "large_init", "wrong_broadcast"),
        *("same_batch", "shuffled_labels", "unnormalised_targets", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "weight_decay_too_high", "nan_inputs"),
    ),
    spent="2026-11-26",
)
