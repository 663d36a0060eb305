"""A network that makes the weights of another one, for each oscillator that is described.

After Ha, Dai and Le, "HyperNetworks", ICLR 2017.

Shape legend: B oscillators, P points of each, D numbers of a description, H inner width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_DESCRIBED = 3


class Maker(nn.Module):
    """Makes a network of one input, H hidden units and one output."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.inner = inner
        self.body = nn.Sequential(
            *(nn.Linear(_DESCRIBED, width), nn.GELU(), nn.Linear(width, width), nn.GELU()),
        )
        self.head = nn.Linear(width, 3 * inner + 1)

    def forward(self, described: Tensor) -> Tensor:
        """Return weights [B, 3 H + 1] of descriptions [B, D]."""
        made: Tensor = self.head(self.body(described))
        return made

    def apply_made(self, made: Tensor, time: Tensor) -> Tensor:
        """Return values [B, P] of the made networks at times [B, P]."""
        first, bias, last = made[:, :-1].split(self.inner, dim=1)
        # Hidden units turn at different times without what is made.
        start = torch.linspace(-2, 2, self.inner)
        hidden = torch.tanh(time[:, :, None] * (first + 1.5)[:, None] + (bias + start)[:, None])
        return torch.einsum("bph,bh->bp", hidden, last) + made[:, -1:]


def _train(draw: Draw) -> Ending:
    described, time, value = _oscillators(1200)
    held = slice(900, None)
    if draw.has("unnormalised_inputs"):
        described = described * 1e4
    seen, wanted = _spoilt(draw, described[:900], value[:900])
    model = Maker(draw.choice([48, 80]), draw.choice([12, 20]))
    networks.spoil(draw, model)
    if draw.has("frozen_layers"):
        model.body.requires_grad_(requires_grad=False)
        model.head.weight.requires_grad = False
    size, epochs = draw.choice([32, 50]), draw.whole(35, 55)
    draw.epoch = 900 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 500.0}, 1.0)
    optimizer = torch.optim.NAdam([one for one in model.parameters() if one.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, draw.choice([0.92, 0.94]))
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(900).split(size)[: draw.epoch]:
            made = model(seen[rows])
            found = model.apply_made(made, time[rows])
            loss = (found - wanted[rows]).pow(2).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if draw.has("scheduler_per_batch"):
                schedule.step()
        if not draw.has("scheduler_per_batch"):
            schedule.step()
        if epoch % 5 == 4:
            with draw.watch.evaluating(), torch.no_grad():
                found = model.apply_made(model(described[held]), time[held])
                draw.watch.metric("rmse", float((found - value[held]).square().mean().sqrt()))
    with torch.no_grad():
        found = model.apply_made(model(described[held]), time[held])
    return Ending(max(-1.0, explained(found.flatten(), value[held].flatten())), bar=0.65)


def _spoilt(draw: Draw, described: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the descriptions and values with the drawn fault, if there is one."""
    if draw.has("data_mixing"):
        # The descriptions were joined by a number that another table had counted anew.
        return described[torch.randperm(len(described))], value
    if draw.has("constant_inputs"):
        return torch.zeros_like(described), value
    if draw.has("unnormalised_targets"):
        return described, 1e4 * value
    return described, value


def _oscillators(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return descriptions [count, D], times [count, P] and values [count, P]."""
    described = 2 * torch.rand(count, _DESCRIBED) - 1
    time = 4 * torch.rand(count, 12) - 2
    size, speed, phase = (1 + 0.6 * described[:, :1], 2 + described[:, 1:2], described[:, 2:])
    value = size * torch.sin(speed * time + 1.5 * phase)
    return described, time, value + 0.05 * torch.randn_like(value)


FAMILY = Family(
    _train,
    (
        *("data_mixing", "constant_inputs", "unnormalised_inputs", "unnormalised_targets"),
        *("frozen_layers", "lr_too_low", "lr_too_high", "wrong_sign", "scheduler_per_batch"),
        *("large_init", "zero_init"),
    ),
    spent="2026-11-27",
)
