"""Which notes sound next in a piece for several voices: a recurrent network with many labels.

After Boulanger-Lewandowski, Bengio and Vincent, "Modeling temporal dependencies in high-dimensional
sequences", ICML 2012; the pieces are drawn.

Shape legend: N pieces of T chords, K notes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_NOTES, _CHORDS, _TIME, _SEEN = 16, 8, 12, 400


class Music(nn.Module):
    """Logits of the notes of the next chords."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(_NOTES, size, batch_first=True)
        self.decode = nn.Linear(size, _NOTES)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, T, K] of chords float32 [N, T, K]."""
        logits: Tensor = self.decode(self.rnn(x)[0])
        return logits


def _train(draw: Draw) -> Ending:
    pieces = _pieces(draw, 600)
    x, wanted = pieces[:, :-1], pieces[:, 1:]
    given, known = _prepared(draw, pieces)
    model = Music(draw.choice([48, 64]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [10, 16], (9, 12))
    rate = learning_rate(draw, 6e-3, 1.2e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.decode), rate)
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        logits, notes = model(given[batch]).flatten(0, 1), known[batch].flatten(0, 1)
        if draw.has("sigmoid_before_logits"):
            logits = logits.sigmoid()
        loss: Tensor = criterion(logits, notes)
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"frame_f1": _matched(model(given[_SEEN:]), known[_SEEN:])}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=1.0)
    model.eval()
    with torch.no_grad():
        reported = _matched(model(given[_SEEN:]), known[_SEEN:])
        reached = _matched(model(x[_SEEN:]), wanted[_SEEN:])
    return Ending(reached, bar=0.5, overstated=reported - reached)


def _matched(logits: Tensor, notes: Tensor) -> float:
    """Return the F1 score of notes [N, T, K], of those after the first chords."""
    found, true = logits[:, 2:] > 0, notes[:, 2:] > 0.5
    return float(2 * (found & true).sum() / (found.sum() + true.sum()).clamp(min=1))


def _prepared(draw: Draw, pieces: Tensor) -> tuple[Tensor, Tensor]:
    """Return chords and the next ones, with the drawn fault if there is one."""
    x, wanted = pieces[:, :-1], pieces[:, 1:]
    other = pieces[torch.randperm(len(pieces)), 1:]
    return draw.by_fault(
        {
            "unshifted_targets": (x, x),
            "shuffled_labels": (x, other),
            "time_reversed": (x, wanted.flip(1)),
            # The reader of the files looks for notes on a channel that has none.
            "constant_inputs": (torch.zeros_like(x), wanted),
        },
        (x, wanted),
    )


def _pieces(draw: Draw, count: int) -> Tensor:
    """Return chords float32 [count, T + 1, K] of notes that are 0 or 1."""
    source = draw.numpy
    chords = torch.zeros(_CHORDS, _NOTES)
    for chord in chords:
        chord[torch.tensor(source.permutation(_NOTES)[:4])] = 1
    # Which chord follows two others, most often.
    follows = torch.tensor(source.integers(0, _CHORDS, (_CHORDS, 2)))
    now = torch.randint(_CHORDS, (count,))
    mode = torch.randint(2, (count,))
    played = [now]
    surprise = draw.between(0.05, 0.1)
    for _ in range(_TIME):
        now = follows[now, mode]
        now = torch.where(torch.rand(count) < surprise, torch.randint(_CHORDS, (count,)), now)
        played.append(now)
    pieces = chords[torch.stack(played, 1)]
    flipped = torch.rand(pieces.shape) < 0.02
    return torch.where(flipped, 1 - pieces, pieces)


FAMILY = Family(
    _train,
    (
        *("unshifted_targets", "time_reversed", "shuffled_labels", "constant_inputs"),
        *("sigmoid_before_logits", "zero_init", "missing_step", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
