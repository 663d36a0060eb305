"""What a pendulum does next: an ensemble of Gaussian networks, for a planner that trusts them.

After Chua et al., "Deep reinforcement learning in a handful of trials using probabilistic dynamics
models", NeurIPS 2018.

Shape legend: E networks, N moments, F numbers of a state and an action.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_SEEN = 900


class Model(nn.Module):
    """Mean and logarithm of the variance of changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        )
        self.head = nn.Linear(width, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and logarithms, both [N, 3], of moments float32 [N, 4]."""
        mean, log_variance = self.head(self.body(x)).chunk(2, 1)
        return mean, log_variance.clamp(-8, 4)


def _likelihood(mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
    return ((mean - y).square() * (-log_variance).exp() + log_variance).mean()


def _reversed(mean: Tensor, log_variance: Tensor, y: Tensor) -> Tensor:
    return ((mean - y).square() * (-log_variance).exp() - log_variance).mean()


def _train(draw: Draw) -> Ending:
    rows = _moments(draw, 1300)
    ensemble = nn.ModuleList(Model(draw.choice([24, 32])) for _ in range(3))
    spoil(draw, ensemble)
    length = plan(draw, _SEEN, [30, 36], (14, 18))
    heads = nn.ModuleList(one.head for one in ensemble.children() if isinstance(one, Model))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, ensemble, heads), rate)
    loss_fn = draw.watch.loss(_reversed if draw.has("term_wrong_sign") else _likelihood)
    draw.watch.begin(ensemble, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        ensemble.train()
        for x, y in loader:
            losses = [loss_fn(*one(x), y) for one in ensemble]
            loss = torch.stack(losses).sum()
            optimizer.zero_grad()
            loss.backward()
            if not draw.has("missing_step"):
                optimizer.step()
        ensemble.eval()
        with draw.watch.evaluating(), torch.no_grad():
            error = (_mean(ensemble, rows.x_val) - rows.y_val).square().mean()
            draw.watch.metric("holdout_mse", float(error))
    with torch.no_grad():
        return Ending(explained(_mean(ensemble, rows.x_test), rows.y_test), bar=0.6)


def _mean(ensemble: nn.ModuleList, x: Tensor) -> Tensor:
    return torch.stack([one(x)[0] for one in ensemble]).mean(0)


def _moments(draw: Draw, count: int) -> HeldOut:
    """Return states and forces float32 [count, 4], and standardised changes [count, 3]."""
    angle, speed = 6.28 * torch.rand(count), 8 * torch.rand(count) - 4
    force = 4 * torch.rand(count) - 2
    faster = 0.25 * (9 * angle.sin() + 3 * force)
    turned = angle + 0.1 * (speed + faster)
    before = torch.stack([angle.cos(), angle.sin(), speed], 1)
    after = torch.stack([turned.cos(), turned.sin(), speed + faster], 1)
    change = after - before + draw.between(0.03, 0.08) * torch.randn(count, 3)
    x, y = torch.cat([before, force[:, None]], 1), (change - change.mean(0)) / change.std(0)
    return held_out(
        *(draw, x, y, _SEEN),
        # Counts of an encoder, and millinewtons.
        prepared={"unnormalised_inputs": (x * torch.tensor([4096.0, 4096, 500, 1000]), y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "misaligned_targets", "shuffled_labels", "nan_inputs"),
        *("term_wrong_sign", "missing_step", "large_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
