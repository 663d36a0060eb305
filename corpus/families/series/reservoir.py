"""The future of a chaotic series, read out of a reservoir of which nothing is trained.

After Jaeger and Haas, "Harnessing nonlinearity: predicting chaotic systems and saving energy in
wireless communication", Science 2004.

Shape legend: T times, H units of the reservoir.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_AHEAD, _LENGTH, _SEEN, _BEGIN = 6, 1800, 1300, 100


class Reservoir(nn.Module):
    """Fixed random connections, whose states are read out by dense layers."""

    inner: Tensor
    outer: Tensor

    def __init__(self, units: int, radius: float, width: int) -> None:
        super().__init__()
        inner = torch.randn(units, units) * (torch.rand(units, units) < 0.2)
        inner *= radius / torch.linalg.eigvals(inner).abs().max()
        self.register_buffer("inner", inner)
        self.register_buffer("outer", 2 * torch.rand(units) - 1)
        self.readout = nn.Sequential(nn.Linear(units, width), nn.GELU(), nn.Linear(width, 1))

    @torch.no_grad()
    def states(self, series: Tensor) -> Tensor:
        """Return the states [T, H] after each value of a series [T]."""
        state, kept = torch.zeros(len(self.outer)), []
        for value in series:
            state = 0.5 * state + 0.5 * torch.tanh(self.inner @ state + self.outer * value)
            kept.append(state)
        return torch.stack(kept)

    def forward(self, states: Tensor) -> Tensor:
        """Return values [N, 1] of states [N, H]."""
        found: Tensor = self.readout(states)
        return found


def _train(draw: Draw) -> Ending:
    series = _mackey_glass(draw)
    told = 1e5 * series + 1e6 if draw.has("unnormalised_inputs") else series
    if draw.has("constant_inputs"):
        told = torch.zeros_like(series)
    radius = draw.between(0.8, 0.95)
    if draw.has("spectral_radius"):
        # The random weights were not divided by their largest eigenvalue.
        radius *= 60
    model = Reservoir(draw.choice([60, 100]), radius, draw.choice([16, 32]))
    if draw.has("zero_init"):
        for weight in model.parameters():
            nn.init.zeros_(weight)
    states = model.states(told)[_BEGIN:-_AHEAD]
    after = series[_BEGIN + _AHEAD :, None]
    seen, known = states[:_SEEN], after[:_SEEN]
    if draw.has("misaligned_targets"):
        known = known[torch.randperm(_SEEN)]
    if draw.has("unnormalised_targets"):
        known = 1e4 * known + 1e5
    steps, size = draw.steps(700, 1200), draw.choice([32, 64])
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    decay = 0.3 / rate if draw.has("weight_decay_too_high") else 1e-5
    optimizer = torch.optim.AdamW(model.readout.parameters(), lr=rate, weight_decay=decay)
    if draw.has("wrong_parameters"):
        optimizer = torch.optim.AdamW(nn.Linear(60, 1).parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    for step in range(1, steps + 1):
        rows = torch.randint(12 if draw.has("same_batch") else _SEEN, (size,))
        found, wanted = model(seen[rows]), known[rows]
        wanted = wanted[:, 0] if draw.has("wrong_broadcast") else wanted
        loss = nn.functional.l1_loss(found, wanted)
        model.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 150 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                error = (model(states[_SEEN:]) - after[_SEEN:]).square().mean().sqrt()
                draw.watch.metric("nrmse", float(error))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(states[_SEEN:]), after[_SEEN:])), bar=0.7)


def _mackey_glass(draw: Draw) -> Tensor:
    """Return a series [T] of mean 0 and standard deviation 1, with a little noise."""
    delay, values = 17, [1.2 + 0.2 * float(one) for one in torch.rand(18)]
    for _ in range(3 * _LENGTH):
        past = values[-1 - delay]
        values.append(values[-1] + 0.2 * past / (1 + past**10) - 0.1 * values[-1])
    series = torch.tensor(values[-3 * _LENGTH :: 3])
    series = (series - series.mean()) / series.std()
    return series + draw.between(0.01, 0.04) * torch.randn(len(series))


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "constant_inputs", "misaligned_targets", "unnormalised_targets"),
        *("lr_too_low", "lr_too_high", "weight_decay_too_high", "wrong_parameters"),
        *("same_batch", "wrong_broadcast", "wrong_sign", "zero_init"),
        "spectral_radius",
    ),
    spent="2026-11-27",
)
