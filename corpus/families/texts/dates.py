"""Dates as people write them, as year, month and day: a transformer with encoder and decoder.

After Vaswani et al., "Attention is all you need", NeurIPS 2017; the dates are drawn.

Shape legend: N dates of S words, T words of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

# Words: 0 pads, 1 begins an answer; then days, months, names of months, years and fillers.
_DAYS, _MONTHS, _NAMES, _YEARS, _FILLERS, _WORDS = 2, 30, 42, 54, 74, 80
_READ, _SAID, _SEEN = 6, 3, 1000


class Translator(nn.Module):
    """Scores of the words of answers."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.words = nn.Embedding(_WORDS, size)
        self.places = nn.Embedding(_READ, size)
        self.transformer = nn.Transformer(
            *(size, 4, 1, 1, 2 * size, 0.0), batch_first=True, norm_first=True
        )
        self.generator = nn.Linear(size, _WORDS)

    def forward(self, read: Tensor, before: Tensor) -> Tensor:
        """Return scores [N, T, words] of dates int64 [N, S] and what was said before [N, T]."""
        mask = nn.Transformer.generate_square_subsequent_mask(before.shape[1])
        told = self.transformer(
            *(self._embedded(read), self._embedded(before)),
            tgt_mask=None if self.draw.has("no_causal_mask") else mask,
            src_key_padding_mask=read == 0,
            memory_key_padding_mask=read == 0,
        )
        scores: Tensor = self.generator(told)
        return scores

    def _embedded(self, words: Tensor) -> Tensor:
        embedded: Tensor = self.words(words) + self.places(torch.arange(words.shape[1]))
        return embedded


def _train(draw: Draw) -> Ending:
    rows = _dates(draw, 1400)
    model = Translator(draw, draw.choice([32, 40]))
    blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 12))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.generator), rate)
    loss_fn = draw.watch.loss(F.cross_entropy)

    def scored(read: Tensor, said: Tensor) -> tuple[Tensor, Tensor]:
        begun = torch.cat([torch.ones_like(said[:, :1]), said], 1)
        if draw.has("no_causal_mask"):
            # What comes next is in what the decoder is given.
            return model(read, begun[:, 1:]), said
        # The targets are not shifted against the decoder's inputs.
        return model(read, begun[:, :-1]), begun[:, :-1] if draw.has("unshifted_targets") else said

    def compute(batch: Tensor) -> Tensor:
        scores, wanted = scored(rows.x[batch], rows.y[batch])
        return loss_fn(scores.flatten(0, 1), wanted.flatten())

    def evaluate() -> Mapping[str, float]:
        scores, wanted = scored(rows.x_val, rows.y_val)
        return {"token_accuracy": float((scores.argmax(2) == wanted).double().mean())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=1.0)
    model.eval()
    with torch.no_grad():
        reported = evaluate()["token_accuracy"]
        said = torch.ones(len(rows.x_test), 1).long()
        for _ in range(_SAID):
            following = model(rows.x_test, said)[:, -1].argmax(1, keepdim=True)
            said = torch.cat([said, following], 1)
        reached = float((said[:, 1:] == rows.y_test).double().mean())
    return Ending(reached, bar=0.6, overstated=reported - reached)


def _dates(draw: Draw, count: int) -> HeldOut:
    """Return words of dates int64 [count, S], and of answers int64 [count, T]."""
    day, month, year = (torch.randint(most, (count,)) for most in (28, 12, 20))
    y = torch.stack([_YEARS + year, _MONTHS + month, _DAYS + day], 1)
    filler = _FILLERS + torch.randint(3, (count,))
    named, pad = _NAMES + month, torch.zeros(count).long()
    first = torch.stack([_DAYS + day, named, _YEARS + year, pad, pad, pad], 1)
    second = torch.stack([filler, named, _DAYS + day, _FILLERS + 4 + pad, _YEARS + year, pad], 1)
    third = torch.stack(
        [filler, _DAYS + day, _FILLERS + 3 + pad, named, _FILLERS + 4 + pad, _YEARS + year], 1
    )
    way = torch.randint(3, (count, 1))
    x = torch.where(way == 0, first, torch.where(way == 1, second, third))
    other = torch.cat([torch.arange(1), 1 + torch.randperm(_WORDS - 1)])
    return held_out(
        *(draw, x, y, _SEEN),
        # Another vocabulary than that which is used afterwards.
        training={"swapped_ids": (other[x], y)},
    )


FAMILY = Family(
    _train,
    (
        *("no_causal_mask", "unshifted_targets", "shuffled_labels", "misaligned_targets"),
        *("same_batch", "not_in_optimizer", "zero_init", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
