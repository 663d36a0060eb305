"""Sequences that are reversed, by a recurrent encoder and decoder with attention.

After Luong et al., "Effective approaches to attention-based neural machine translation",
EMNLP 2015.

Shape legend: N sequences, T symbols, V symbols and the start, E encoder width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, run_loop
from corpus.optimisation import Optimisation


class Translator(nn.Module):
    """Encoder, decoder, and attention of the decoder to the encoder's states."""

    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.source = nn.Embedding(symbols + 1, width)
        self.target = nn.Embedding(symbols + 1, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.mix = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, symbols + 1)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """Return scores [N, T, V] of the symbols that follow int64 [N, T], for sources [N, T]."""
        states, last = self.encoder(self.source(x))
        inner, _ = self.decoder(self.target(before), last)
        weights = (inner @ states.mT / states.shape[2] ** 0.5).softmax(2)
        scores: Tensor = self.head(torch.tanh(self.mix(torch.cat([inner, weights @ states], 2))))
        return scores


def _train(draw: Draw) -> Ending:
    symbols, length = draw.choice([5, 6, 8]), draw.choice([3, 4])
    x = torch.randint(1, symbols + 1, (2200, length))
    y = x.flip(1) if draw.chance(0.6) else x.sort(1).values
    x_train, y_train, x_val, y_val = x[:1900], y[:1900], x[1900:], y[1900:]
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    model = Translator(symbols, draw.choice([32, 48]))
    networks.spoil(draw, model)
    steps = draw.steps(250, 450)
    optimiser = Optimisation(
        draw, model, steps, scale=3.0, kinds=("adam", "adamw"), accumulates=False
    )
    loss = losses.class_loss(draw)
    source = batches(draw, x_train, y_train, 32)

    def compute() -> Tensor:
        batch, wanted = next(source)
        before = torch.cat([torch.zeros_like(wanted[:, :1]), wanted[:, :-1]], 1)
        if draw.has("unshifted_targets"):
            before = wanted
        if draw.has("wrong_shift"):
            # The decoder sees what comes after the next symbol.
            before = torch.cat([wanted[:, 1:], torch.zeros_like(wanted[:, :1])], 1)
        return loss(model(batch, before).flatten(0, 1), wanted.flatten())

    def score() -> float:
        return float((_decoded(model, x_val) == y_val).double().mean())

    def evaluate() -> Mapping[str, float]:
        return {"token_accuracy": score()}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(score(), 1 / symbols), bar=0.6)


def _decoded(model: nn.Module, x: Tensor) -> Tensor:
    """Return the most probable symbols int64 [N, T], each after those before it."""
    said = torch.zeros(len(x), 1, dtype=torch.int64)
    for _ in range(x.shape[1]):
        said = torch.cat([said, model(x, said)[:, -1:].argmax(2)], 1)
    return said[:, 1:]


FAMILY = Family(
    _train,
    (
        *("unshifted_targets", "wrong_shift", "shuffled_labels", "wrong_loss"),
        *("same_batch", "wrong_sign", "zero_init"),
        *("lr_too_high", "lr_too_low", "scheduler_to_zero", "frozen_layers", "wrong_parameters"),
    ),
    spent="2026-11-25",
)
