"""Rows of several regimes, each known to another expert: a gate chooses among them.

After Jacobs et al., "Adaptive mixtures of local experts", 1991, with the balance term of Shazeer
et al., "Outrageously large neural networks", ICLR 2017.

Shape legend: N rows, F features, C classes, E experts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.optimisation import Optimisation


class Mixture(nn.Module):
    """Experts, and a gate whose softmax is over one axis."""

    def __init__(self, features: int, width: int, classes: int, experts: int, axis: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))
            for _ in range(experts)
        )
        self.axis = axis

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [N, C] and weights [N, E] of rows [N, F]."""
        weights = self.gate(x).softmax(self.axis)
        said = torch.stack([expert(x) for expert in self.experts], 1)
        return (weights[:, :, None] * said).sum(1), weights


def _train(draw: Draw) -> Ending:
    classes, features = draw.choice([3, 4, 6]), draw.choice([10, 16])
    x, y = _regimes(draw, 4000, features, classes)
    data = rows_of(draw, x.numpy(), y.numpy(), classes=classes)
    experts = draw.choice([4, 6])
    axis = 0 if draw.has("softmax_wrong_axis") else 1
    model = Mixture(features, draw.choice([24, 32]), classes, experts, axis)
    networks.spoil(draw, model)
    steps = draw.steps(350, 700)
    optimiser = Optimisation(draw, model, steps, scale=2.5, kinds=("adam", "adamw"))
    source = batches(draw, data.x, data.y, draw.choice([64, 128]))
    balance = draw.choice([0.01, 0.03])

    def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(scores, labels)

    loss = draw.watch.loss(cross_entropy)

    def compute() -> Tensor:
        rows, labels = next(source)
        scores, weights = model(rows)
        load = weights.sum(0)
        spread = load.var() / (load.mean().square() + 1e-9)
        total: Tensor = loss(scores, labels) + balance * spread
        return total

    def evaluate() -> Mapping[str, float]:
        return {"top1": accuracy(model(data.x_val)[0], data.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        right = accuracy(model(data.x_val)[0], data.y_val)
    return Ending(gained(right, 1 / classes), bar=0.5)


def _regimes(draw: Draw, count: int, features: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return rows [N, F] and classes [N] by a rule that differs among four regimes."""
    x = torch.randn(count, features)
    regime = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    x[:, :2] += 1.0 * x[:, :2].sign()
    rules = torch.randn(4, features, classes)
    scores = torch.einsum("nf,nfc->nc", x, rules[regime])
    scores = scores + draw.between(0.2, 0.6) * torch.randn_like(scores)
    x = (x - x.mean(0)) / x.std(0)
    return x, scores.argmax(1)


FAMILY = Family(
    _train,
    (
        *("softmax_wrong_axis", "shuffled_labels", "off_by_one"),
        *("unnormalised_inputs", "constant_inputs", "lr_too_high", "lr_too_low"),
        *("weight_decay_too_high", "zero_init"),
    ),
    spent="2026-11-26",
)
