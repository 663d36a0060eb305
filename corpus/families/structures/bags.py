"""Bags of rows with one label each: attention finds the rows that matter.

After Ilse et al., "Attention-based deep multiple instance learning", ICML 2018.

Shape legend: N bags, M rows of a bag, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation

_ROWS = 12


class BagNet(nn.Module):
    """A network of rows, pooled by attention over one axis."""

    def __init__(self, features: int, width: int, axis: int) -> None:
        super().__init__()
        self.row = nn.Sequential(nn.Linear(features, width), nn.ReLU())
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.weight, self.head = nn.Linear(width, 1), nn.Linear(width, 1)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, 1] of bags [N, M, F]."""
        inner = self.row(x)
        gated = self.value(inner).tanh() * self.gate(inner).sigmoid()
        shares = self.weight(gated).softmax(self.axis)
        logits: Tensor = self.head((shares * inner).sum(self.axis))
        return logits


def _train(draw: Draw) -> Ending:
    features = draw.choice([6, 10])
    x, y = _bags(draw, 1500, features)
    kept = _ROWS * draw.choice([20, 40, 80])
    x_train, y_train, x_val, y_val = x[:kept], y[:kept], x[-480:], y[-480:]
    if draw.has("label_noise"):
        wrong = torch.rand(kept, 1) < draw.amount.uniform(0.4, 0.5)
        y_train = torch.where(wrong, 1 - y_train, y_train)
    if draw.has("single_label"):
        y_train = torch.ones_like(y_train)
    # As many bags as rows of a bag: over the wrong axis, all sizes are right.
    size = _ROWS if draw.concerns("pool_wrong_axis") else draw.choice([24, 48])
    axis = 0 if draw.has("pool_wrong_axis") else 1
    model = BagNet(features, draw.choice([24, 32]), axis)
    networks.spoil(draw, model)
    steps = draw.steps(400, 800)
    optimiser = Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    loss = losses.binary_loss(draw)
    source = batches(draw, x_train, y_train, size)

    def compute() -> Tensor:
        rows, labels = next(source)
        return loss(model(rows), labels)

    def logits() -> Tensor:
        return torch.cat([model(part) for part in x_val.split(size)])

    def evaluate() -> Mapping[str, float]:
        found = logits() > 0
        return {"bag_error": float((found != (y_val > 0.5)).double().mean())}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        found, wanted = logits() > 0, y_val > 0.5
    hit = float(found[wanted].double().mean())
    return Ending(hit - float(found[~wanted].double().mean()), bar=0.5)


def _bags(draw: Draw, count: int, features: int) -> tuple[Tensor, Tensor]:
    """Return bags [N, M, F] and whether one has a row of the sought kind, float32 [N, 1]."""
    x = torch.randn(count, _ROWS, features)
    y = (torch.arange(count) % 2).float()[torch.randperm(count), None]
    key = torch.nn.functional.normalize(torch.randn(features), dim=0)
    x = x - (x @ key).clamp(min=1.0)[:, :, None] * key + key
    number = torch.randint(1, 4, (count, 1))
    chosen = (torch.arange(_ROWS) < number).float() * y
    lift = draw.between(2.5, 3.5) * chosen[:, :, None] * key
    return x + lift, y


FAMILY = Family(
    _train,
    (
        *("pool_wrong_axis", "label_noise", "single_label", "lr_too_low"),
        *("large_init", "wrong_sign", "scheduler_per_batch"),
    ),
    spent="2026-11-26",
)
