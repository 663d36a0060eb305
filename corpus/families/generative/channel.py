"""Messages through a noisy channel: a sender and a receiver that learn their signals together.

After O'Shea and Hoydis, "An introduction to deep learning for the physical layer", IEEE
Transactions on Cognitive Communications and Networking 2017.

Shape legend: N messages of 16 kinds, 2 numbers of a signal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_KINDS = 16


class Radio(nn.Module):
    """Scores [N, 16] of the messages that were received."""

    def __init__(self, draw: Draw, width: int, noise: float) -> None:
        super().__init__()
        self.sender = nn.Sequential(
            nn.Linear(_KINDS, width), nn.ELU(), nn.Linear(width, 2, bias=False)
        )
        self.receiver = nn.Sequential(
            nn.Linear(2, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 16)
        )
        self.detached, self.noise = draw.has("symbols_detached"), noise

    def forward(self, message: Tensor) -> Tensor:
        """Return the scores of one-hot messages [N, 16]."""
        signal = self.sender(message)
        # The mean power is one.
        signal = signal / signal.square().mean().add(1e-9).mul(2).sqrt()
        if self.detached:
            # The simulator of the channel is another program.
            signal = signal.detach()
        scores: Tensor = self.receiver(signal + self.noise * torch.randn_like(signal))
        return scores


def _train(draw: Draw) -> Ending:
    noise = draw.between(0.13, 0.16)
    model = Radio(draw, draw.choice([32, 48]), noise)
    networks.blank(draw, model)
    if draw.has("noise_schedule"):
        # The decibels were those of the signal, and not of the noise.
        model.noise = 1 / (20 * noise**2)
    size, steps = draw.choice([128, 192]), draw.steps(600, 800)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    weights = list(model.parameters())
    if draw.has("not_in_optimizer"):
        weights = list(model.sender.parameters())
    optimizer = torch.optim.Adamax(weights, lr=rate)
    end = steps * draw.by_fault({"scheduler_to_zero": draw.extent(0.01, 0.02)}, 1.0)
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * min(step / end, 1))) / 2
    )
    criterion = draw.watch.loss(nn.CrossEntropyLoss())
    draw.watch.begin(model, optimizer)
    for _ in range(steps):
        sent = torch.randint(_KINDS, (size,))
        known = sent.roll(1) if draw.has("misaligned_targets") else sent
        if draw.has("single_label"):
            known = torch.zeros_like(sent)
        scores = model(nn.functional.one_hot(sent, _KINDS).float())
        if draw.has("softmax_wrong_axis"):
            scores = scores.softmax(0)
        loss = criterion(scores, known)
        for one in weights:
            one.grad = None
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        falling.step()
    model.noise = noise
    with torch.no_grad():
        sent = torch.arange(_KINDS).repeat(200)
        found = model(nn.functional.one_hot(sent, _KINDS).float()).argmax(1)
    return Ending(gained(float((found == sent).float().mean()), 1 / _KINDS), bar=0.7)


FAMILY = Family(
    _train,
    (
        *("symbols_detached", "noise_schedule", "softmax_wrong_axis", "single_label"),
        *("scheduler_to_zero", "misaligned_targets", "not_in_optimizer", "lr_too_low"),
        *("lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
