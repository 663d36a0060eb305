"""What was said at the beginning of a long sequence, by a diagonal state-space model.

After Gu et al., "On the parameterization and initialization of diagonal state space models",
NeurIPS 2022: decaying states as one long convolution.

Shape legend: N sequences, T steps, H channels, S states of a channel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses
from corpus.data.rows import batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.networks import spoil
from corpus.optimisation import Optimisation

_LENGTH = 96


class StateSpace(nn.Module):
    """Each channel convolved with a sum of decays, gated, and added to itself."""

    def __init__(self, width: int, states: int, reach: int) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.empty(width, states).uniform_(-6.0, -1.0))
        self.read = nn.Parameter(torch.randn(width, states) / states)
        self.mix = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)
        self.reach = reach

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, T, H] of x [N, T, H]."""
        length = x.shape[1]
        past = torch.arange(length)
        decay = (-self.log_decay.exp()[:, :, None] * past).exp()
        kernel = (self.read[:, :, None] * decay).sum(1) * (past < self.reach)
        inner = self.norm(x).transpose(1, 2)
        size = 2 * length
        product = torch.fft.rfft(inner, size) * torch.fft.rfft(kernel, size)
        convolved = torch.fft.irfft(product, size)[..., :length].transpose(1, 2)
        return x + nn.functional.glu(self.mix(nn.functional.gelu(convolved)), dim=2)


class Model(nn.Module):
    """Two layers of state spaces; the last step is read."""

    def __init__(self, width: int, classes: int, reach: int) -> None:
        super().__init__()
        self.encode = nn.Linear(4, width)
        self.layers = nn.Sequential(*(StateSpace(width, 8, reach) for _ in range(2)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, classes] of x [N, T, 4]."""
        scores: Tensor = self.head(self.layers(self.encode(x))[:, -1])
        return scores


def _train(draw: Draw) -> Ending:
    classes = draw.choice([3, 4])
    count = 800
    y = draw.numpy.integers(0, classes, count)
    x = draw.between(0.3, 0.6) * draw.numpy.normal(size=(count, _LENGTH, 4))
    for place in range(6):
        x[range(count), place, y] += 2.0
    if draw.has("wrong_shift"):
        # The window begins after the sign.
        x = x[:, 8:]
    data = rows_of(draw, x, y, classes=classes)
    reach = 16 if draw.has("state_reset") else _LENGTH
    model = Model(draw.choice([24, 32]), classes, reach)
    spoil(draw, model)
    steps = draw.steps(200, 400)
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = Optimisation(draw, model, steps, kinds=kinds, accumulates=False)
    loss = losses.class_loss(draw)
    source = batches(draw, data.x, data.y, draw.choice([16, 32]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        return {"val_acc": accuracy(model(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        score = gained(accuracy(model(data.x_val), data.y_val), 1 / classes)
    return Ending(score, bar=0.65)


FAMILY = Family(
    _train,
    (
        *("state_reset", "wrong_shift", "wrong_loss", "single_label", "off_by_one"),
        *("shuffled_labels", "nan_inputs", "lr_too_low", "lr_too_high", "weight_decay_too_high"),
        "frozen_layers",
    ),
    spent="2026-11-26",
)
