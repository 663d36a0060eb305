"""Heat in a rod some time later, by layers that work on frequencies.

After Li et al., "Fourier neural operator for parametric partial differential equations", ICLR 2021.

Shape legend: N rods, 48 places, W channels, K frequencies.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_PLACES, _SEEN = 48, 500


class Frequencies(nn.Module):
    """Complex weights of the lowest frequencies, and a weight of each channel beside them."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        scale = 1 / width
        self.weight = nn.Parameter(scale * torch.randn(width, width, count, dtype=torch.cfloat))
        self.beside = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return channels [N, W, 48] of channels [N, W, 48]."""
        count = self.weight.shape[2]
        waves = torch.fft.rfft(x)[:, :, :count]
        mixed = torch.einsum("nik,iok->nok", waves, self.weight)
        found: Tensor = torch.fft.irfft(mixed, n=_PLACES) + self.beside(x)
        return found


class Operator(nn.Module):
    """The heat [N, 48] later, of the heat [N, 48] now."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1)
        self.layers = nn.ModuleList(Frequencies(width, count) for _ in range(3))
        self.lower = nn.Conv1d(width, 1, 1)

    def forward(self, heat: Tensor) -> Tensor:
        """Return the heat."""
        place = torch.linspace(0, 1, _PLACES).expand_as(heat)
        inner = self.lift(torch.stack([heat, place], 1))
        for layer in self.layers:
            inner = inner + nn.functional.gelu(layer(inner))
        found: Tensor = self.lower(inner)[:, 0]
        return found


def _train(draw: Draw) -> Ending:
    now, later = _rods(draw, 650)
    if draw.has("unnormalised_inputs"):
        now = 3e4 * now + 3e5
    seen, known = _spoilt(draw, now[:_SEEN], later[:_SEEN])
    model = Operator(draw.choice([12, 16]), draw.choice([8, 10]))
    _spoil(draw, model)
    size, epochs = draw.choice([20, 25]), draw.whole(10, 14)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 0.3 / rate}, 1e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(_SEEN).split(size):
            found, wanted = model(seen[rows]), known[rows]
            # Relative to the size of each answer.
            loss = ((found - wanted).norm(dim=1) / (wanted.norm(dim=1) + 1e-3)).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("r2", explained(model(now[_SEEN:]), later[_SEEN:]))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(now[_SEEN:]), later[_SEEN:])), bar=0.7)


@torch.no_grad()
def _spoil(draw: Draw, model: Operator) -> None:
    """Give the weights the drawn fault of their first values, if there is one."""
    if draw.has("zero_init"):
        for weight in model.parameters():
            weight.zero_()
    if draw.has("large_init"):
        # A scale times the width, and not divided by it.
        for layer in model.layers:
            assert isinstance(layer, Frequencies)
            layer.weight.mul_(300)


def _spoilt(draw: Draw, now: Tensor, later: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rods with the drawn fault, if there is one."""
    if draw.has("misaligned_targets"):
        return now, later[torch.randperm(len(later))]
    if draw.has("wrong_axis"):
        return now.T.reshape(now.shape), later
    if draw.has("constant_inputs"):
        return torch.zeros_like(now), later
    if draw.has("augmented_without_targets"):
        return now.roll(_PLACES // 3, 1), later
    if draw.has("unnormalised_targets"):
        return now, 1e4 * later + 1e5
    return now, later


def _rods(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return the heat float32 [count, 48] now and later, which moves, fades and saturates."""
    place, speed = torch.linspace(0, 1, _PLACES + 1)[:-1], draw.between(0.1, 0.3)
    rank = torch.arange(1, 6)
    size, phase = torch.randn(count, 5, 1) / rank[:, None], torch.rand(count, 5, 1)
    turns = rank[:, None] * place + phase
    now = (size * torch.sin(2 * math.pi * turns)).sum(1)
    fade = torch.exp(-0.05 * rank.square())[:, None]
    moved = 2 * math.pi * (turns - rank[:, None] * speed)
    later = (size * fade * torch.sin(moved)).sum(1)
    return now, torch.tanh(later) + 0.02 * torch.randn(count, _PLACES)


FAMILY = Family(
    _train,
    (
        *("augmented_without_targets", "misaligned_targets", "wrong_axis", "constant_inputs"),
        *("unnormalised_inputs", "unnormalised_targets", "lr_too_low"),
        *("lr_too_high", "weight_decay_too_high", "wrong_sign", "zero_init", "large_init"),
    ),
    spent="2026-11-27",
)
