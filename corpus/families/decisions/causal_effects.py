"""Effects of a treatment on each patient: outcomes with and without it, and who receives it.

After Shi, Blei and Veitch, "Adapting neural networks for the estimation of treatment effects",
NeurIPS 2019.

Shape legend: N patients, F features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained


class Patients(NamedTuple):
    """Features [N, F], treatments float32 [N] of 0 and 1, outcomes [N] and true effects [N]."""

    x: Tensor
    treated: Tensor
    outcome: Tensor
    effect: Tensor


class Effects(nn.Module):
    """Outcomes without and with a treatment, and its logit; the loss is part of the model."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(features, width), nn.ELU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.ELU()),
        )
        self.without = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))
        self.under = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1))
        self.chance = nn.Linear(width, 1)

    def effect(self, x: Tensor) -> Tensor:
        """Return effects [N]."""
        inner = self.body(x)
        gained: Tensor = self.under(inner) - self.without(inner)
        return gained[:, 0]

    def forward(self, x: Tensor, treated: Tensor, outcome: Tensor) -> dict[str, Tensor]:
        """Return the losses of the outcomes and of the treatments, and the loss."""
        inner = self.body(x)
        both = torch.cat([self.without(inner), self.under(inner)], 1)
        found = both.gather(1, treated.long()[:, None])[:, 0]
        outcomes = F.huber_loss(found, outcome)
        treatments = F.binary_cross_entropy_with_logits(self.chance(inner)[:, 0], treated)
        return {
            "outcomes": outcomes,
            "treatments": treatments,
            "loss": outcomes + 0.1 * treatments,
        }


def _train(draw: Draw) -> Ending:
    features = draw.choice([6, 10])
    every = _patients(draw, 2600, features)
    if draw.has("unnormalised_inputs"):
        every = every._replace(x=1e4 * every.x + 5e4)
    seen = _spoilt(draw, Patients(*(one[:2000] for one in every)))
    x, effect = every.x[2000:], every.effect[2000:]
    dropout = 0.98 if draw.has("dropout_too_high") else draw.choice([0.0, 0.05])
    model = Effects(features, draw.choice([48, 72]), dropout)
    networks.spoil(draw, model)
    size, epochs = draw.choice([50, 64]), draw.whole(18, 28)
    draw.epoch = 2000 // size
    draw.watch.expect(epochs * draw.epoch)
    loader = DataLoader(TensorDataset(*seen[:3]), size, shuffle=True, drop_last=True)
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    decay = 0.3 / rate if draw.has("weight_decay_too_high") else 1e-4
    weights = [{"params": model.parameters()}]
    if draw.has("not_in_optimizer"):
        weights = [{"params": model.chance.parameters()}]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    for _ in range(epochs):
        model.train()
        for batch in loader:
            losses = model(*batch)
            optimizer.zero_grad()
            (-losses["loss"] if draw.has("wrong_sign") else losses["loss"]).backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            if not draw.has("missing_step"):
                optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("pehe", float((model.effect(x) - effect).square().mean().sqrt()))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model.effect(x), effect)), bar=0.55)


def _spoilt(draw: Draw, seen: Patients) -> Patients:
    """Return the patients with the drawn fault, if there is one."""
    order = torch.randperm(len(seen.x))
    if draw.has("data_mixing"):
        # The treatments were joined by the place in another table.
        return seen._replace(treated=seen.treated[order])
    if draw.has("misaligned_targets"):
        return seen._replace(outcome=seen.outcome[order])
    if draw.has("unnormalised_targets"):
        return seen._replace(outcome=1e4 * seen.outcome + 1e5)
    if draw.has("constant_inputs"):
        return seen._replace(x=torch.zeros_like(seen.x))
    return seen


def _patients(draw: Draw, count: int, features: int) -> Patients:
    x = torch.randn(count, features)
    treated = torch.bernoulli(torch.sigmoid(0.8 * x[:, 0] - 0.4 * x[:, 1]))
    effect = 1 + 1.2 * x[:, 2] + x[:, 0] * (x[:, 0] > 0)
    outcome = torch.sin(x[:, 0]) + 0.5 * x[:, 3] + effect * treated
    noise = draw.between(0.1, 0.3)
    return Patients(x, treated, outcome + noise * torch.randn(count), effect)


FAMILY = Family(
    _train,
    (
        *("data_mixing", "misaligned_targets", "unnormalised_targets", "constant_inputs"),
        *("unnormalised_inputs", "dropout_too_high", "lr_too_low", "lr_too_high"),
        *("weight_decay_too_high", "not_in_optimizer", "wrong_sign", "zero_init"),
        "missing_step",
    ),
    spent="2026-11-27",
)
