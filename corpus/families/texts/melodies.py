"""The next note of a tune, from those before: an LSTM that is read along the whole tune.

After Sturm et al., "Music transcription modelling and composition using deep learning", 2016; the
tunes are drawn.

Shape legend: N tunes of T notes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import blank

_NOTES, _TIME, _SEEN = 16, 24, 400


class Tune(nn.Module):
    """Scores of the next notes."""

    def __init__(self, draw: Draw, hidden: int) -> None:
        super().__init__()
        self.notes = nn.Embedding(_NOTES, 16)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.98}, 0.1))
        self.head = nn.Linear(hidden, _NOTES)

    def forward(self, notes: Tensor) -> Tensor:
        """Return scores [N, T, 16] of notes int64 [N, T]."""
        scores: Tensor = self.head(self.drop(self.lstm(self.notes(notes))[0]))
        return scores


def _train(draw: Draw) -> Ending:
    tunes = _tunes(draw, 560)
    given = tunes
    if draw.has("time_shuffled"):
        given = tunes.gather(1, torch.rand(tunes.shape).argsort(1))
    seen, held = given[:_SEEN], given[_SEEN:]
    if draw.has("duplicated_rows"):
        seen = seen[torch.arange(_SEEN) % 6]
    if draw.has("swapped_ids"):
        # The numbers of the notes were made anew for each set.
        seen = torch.randperm(_NOTES)[seen]
    model = Tune(draw, draw.choice([32, 40]))
    blank(draw, model)
    length = plan(draw, _SEEN, [10, 16], (8, 10))
    rate = learning_rate(draw, 6e-3, 1e-2)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 0.01)
    loss_fn = draw.watch.loss(F.cross_entropy)

    def compute(picked: Tensor) -> Tensor:
        notes = seen[picked]
        # The note itself is what comes next.
        after = notes[:, :-1] if draw.has("unshifted_targets") else notes[:, 1:]
        return loss_fn(model(notes[:, :-1]).flatten(0, 1), after.flatten())

    def evaluate() -> Mapping[str, float]:
        scores = model(held[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), held[:, 1:].flatten())
        return {"perplexity": float(loss.exp())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, clip=0.5)
    model.eval()
    valid = tunes[_SEEN:]
    with torch.no_grad():
        right = (model(valid[:, :-1]).argmax(2) == valid[:, 1:]).double().mean()
    return Ending(gained(float(right), 0.15), bar=0.3)


def _tunes(draw: Draw, count: int) -> Tensor:
    """Return notes int64 [count, T]: scales up and down, with jumps, in one of four keys."""
    key = torch.randint(4, (count,))
    note, way = torch.randint(_NOTES, (count,)), torch.randint(2, (count,)) * 2 - 1
    wrong = draw.between(0.1, 0.16)
    notes = []
    for _ in range(_TIME):
        notes.append(note)
        step = 1 + (key % 2) + (note % 3 == 0).long()
        way = torch.where(note + way * step > 15, -1, torch.where(note + way * step < 0, 1, way))
        jump = torch.rand(count) < wrong
        note = torch.where(jump, torch.randint(_NOTES, (count,)), note + way * step)
    return torch.stack(notes, 1).clamp(0, _NOTES - 1)


FAMILY = Family(
    _train,
    (
        *("unshifted_targets", "time_shuffled", "swapped_ids", "duplicated_rows"),
        *("wrong_sign", "weight_decay_too_high", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
