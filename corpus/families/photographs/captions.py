"""Captions of pictures, word by word: convolutions, and an LSTM that they set off.

After Vinyals et al., "Show and tell: a neural image caption generator", CVPR 2015; the pictures
and their captions are drawn.

Shape legend: N pictures of 12 x 12 pixels, T words, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SIDE, _SEEN, _WORDS, _TIME = 12, 700, 14, 5
# 0 pads, 1 begins, 2 ends; then sizes, shapes, heights and sides.
_START, _END = 1, 2


class Captioner(nn.Module):
    """Scores of the next words."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            nn.Linear(24 * 9, size),
        )
        self.embed = nn.Embedding(_WORDS, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.out = nn.Linear(size, _WORDS)

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Return scores [N, T, V] of pictures [N, 1, 12, 12] and the words before int64 [N, T]."""
        seen = self.encoder(x)
        if self.draw.has("detached_graph"):
            # The picture is normalised by a statistic that was never set, without gradients.
            seen = 0 * seen.detach()
        begun = seen.tanh()[None]
        scores: Tensor = self.out(self.lstm(self.embed(words), (begun, begun))[0])
        return scores


def _train(draw: Draw) -> Ending:
    x, words = _pictures(draw, 900)
    seen, known = _spoilt(draw, x[:_SEEN], words[:_SEEN])
    model = Captioner(draw, draw.choice([40, 56]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [14, 20], (11, 14))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    criterion = nn.CrossEntropyLoss(ignore_index=_END if draw.has("mask_inverted") else 0)
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        told, wanted = known[rows, :-1], known[rows, 1:]
        if draw.has("unshifted_targets"):
            wanted = told
        scores = model(seen[rows], told)
        if draw.has("wrong_axis"):
            # `view` in place of a transposition.
            scores = scores.reshape(len(rows), _WORDS, -1).transpose(1, 2)
        loss: Tensor = criterion(scores.flatten(0, 1), wanted.flatten())
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"bleu1": _matched(model, x[_SEEN:], words[_SEEN:])}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=4, clip=2.0)
    model.eval()
    with torch.no_grad():
        return Ending((_matched(model, x[_SEEN:], words[_SEEN:]) - 0.5) / 0.5, bar=0.5)


def _matched(model: Captioner, x: Tensor, words: Tensor) -> float:
    """Return the share of right words of captions that are written word by word."""
    said = torch.full((len(x), 1), _START)
    for _ in range(_TIME - 1):
        said = torch.cat([said, model(x, said)[:, -1:].argmax(2)], 1)
    there = words[:, 1:] > 0
    return float((said[:, 1:] == words[:, 1:])[there].double().mean())


def _spoilt(draw: Draw, x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return captions with the drawn fault, if there is one."""
    few = torch.arange(len(x)) % 10
    return draw.by_fault(
        {
            # Captions of the picture that is next in the folder.
            "misaligned_targets": (x, words.roll(1, 0)),
            "duplicated_rows": (x[few], words[few]),
            # Each caption reads from its end.
            "time_reversed": (x, torch.cat([words[:, :1], words[:, 1:].flip(1)], 1)),
        },
        (x, words),
    )


def _pictures(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 1, 12, 12] and captions int64 [count, T]."""
    size, height, side = torch.randint(2, (3, count))
    shape = torch.randint(3, (count,))
    place = torch.arange(_SIDE)
    across = place - (3 + 5 * side + torch.randint(2, (count,)))[:, None, None]
    down = place[:, None] - (3 + 5 * height + torch.randint(2, (count,)))[:, None, None]
    reach = (1.3 + 1.3 * size)[:, None, None]
    disc = torch.hypot(across.float(), down.float()) <= reach + 0.4
    square = torch.maximum(across.abs(), down.abs()) <= reach
    cross = (torch.minimum(across.abs(), down.abs()) < 1) & square
    drawn = torch.stack([disc, square, cross])[shape, torch.arange(count)]
    x = drawn + draw.between(0.1, 0.2) * torch.randn(count, _SIDE, _SIDE)
    ends = torch.full((count,), _END)
    words = torch.stack([ends - 1, 3 + size, 5 + shape, 8 + 2 * height + side, ends], 1)
    return (x - 0.2)[:, None], words


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "duplicated_rows", "time_reversed", "mask_inverted"),
        *("unshifted_targets", "wrong_axis", "detached_graph", "zero_init", "frozen_layers"),
        *("lr_too_high", "lr_too_low", "missing_step"),
    ),
    spent="2026-11-28",
)
