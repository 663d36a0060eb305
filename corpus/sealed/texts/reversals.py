"""Rows of symbols in the reverse order: the encoder of a transformer, and a warm-up of the rate.

After Lippe, "UvA deep learning tutorials", tutorial 6, 2022.

Shape legend: N rows of T symbols, W numbers of a symbol.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import blank, spoil

_SYMBOLS, _TIME, _SEEN = 10, 8, 900


class Reverser(nn.Module):
    """Scores of the symbol at each place."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_SYMBOLS, width)
        dropout = draw.by_fault({"dropout_too_high": 0.95}, 0.0)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout, batch_first=True)
        self.output = nn.Linear(width, _SYMBOLS)
        place = torch.arange(_TIME)[:, None]
        speed = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        wave = torch.stack([torch.sin(place * speed), torch.cos(place * speed)], 2).flatten(1)
        if draw.has("positions_left_out"):
            wave = torch.zeros_like(wave)
        self.register_buffer("places", wave)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, T, 10] of symbols int64 [N, T]."""
        scores: Tensor = self.output(self.encoder(self.embed(x) + self.get_buffer("places")))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _rows(draw, 1200)
    model = Reverser(draw, 32)
    spoil(draw, model)
    blank(draw, model)
    length = plan(draw, _SEEN, [25, 30], (12, 15))
    rate = learning_rate(draw, 4e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.output), rate)
    # Twenty batches, or more than the training has.
    warm_up = draw.by_fault({"warm_up_unit": 50 * length.steps}, 20)

    # The schedule counts batches, and not epochs.
    end = draw.by_fault({"scheduler_to_zero": length.epochs}, length.steps)

    def factor(step: int) -> float:
        share = min(step / end, 1.0)
        return 0.5 * (1 + math.cos(math.pi * share)) * min(1.0, (step + 1) / warm_up)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    loss_fn = draw.watch.loss(F.cross_entropy)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            scores = model(rows.x[picked])
            if draw.has("sequence_lengths"):
                # A view in place of a transposition: the scores of one place go to others.
                scores = scores.transpose(1, 2).reshape(scores.shape)
            loss = loss_fn(scores.flatten(0, 1), rows.y[picked].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            if not draw.has("missing_step"):
                optimizer.step()
            scheduler.step()
        if epoch % 3 == 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                right = (model(rows.x_val).argmax(2) == rows.y_val).float().mean()
                draw.watch.metric("val_acc", float(right))
    model.eval()
    with torch.no_grad():
        right = (model(rows.x_test).argmax(2) == rows.y_test).float().mean()
    return Ending(gained(float(right), 1 / _SYMBOLS), bar=0.7)


def _rows(draw: Draw, count: int) -> HeldOut:
    """Return symbols and the same in the reverse order, both int64 [count, T]."""
    x = torch.randint(_SYMBOLS, (count, _TIME))
    y = x.flip(1)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The two lists were sorted, each on its own.
            "swapped_pairs": (x, y[torch.randperm(count)]),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "constant_inputs", "positions_left_out", "warm_up_unit"),
        *("scheduler_to_zero", "sequence_lengths", "missing_step", "zero_init", "dropout_too_high"),
        *("lr_too_low", "lr_too_high"),
    ),
)
