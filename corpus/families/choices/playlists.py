"""The next songs of playlists, by attention to those before.

After Kang and McAuley, "Self-attentive sequential recommendation", ICDM 2018; the playlists are
drawn.

Shape legend: N playlists, T songs, V songs of the shop, of which 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SONGS, _TIME, _SEEN = 31, 9, 700


class Player(nn.Module):
    """Scores of the next songs."""

    def __init__(self, size: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.songs, self.places = nn.Embedding(_SONGS, size), nn.Embedding(_TIME, size)
        self.attention = nn.MultiheadAttention(size, 2, dropout, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.body = nn.Sequential(
            *(nn.Linear(size, 2 * size), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(2 * size, size),
        )
        self.head = nn.Linear(size, _SONGS)
        self.causal = causal

    def forward(self, songs: Tensor) -> Tensor:
        """Return scores [N, T, V] of songs int64 [N, T]."""
        count = songs.shape[1]
        told = self.songs(songs) + self.places.weight[:count]
        mask = torch.ones(count, count, dtype=torch.bool).triu(1) if self.causal else None
        inner = self.norms[0](told)
        told = told + self.attention(inner, inner, inner, attn_mask=mask, need_weights=False)[0]
        told = told + self.body(self.norms[1](told))
        scores: Tensor = self.head(told)
        return scores


def _train(draw: Draw) -> Ending:
    faithful = draw.between(0.85, 0.95)
    songs = _playlists(draw, 900, faithful)
    seen = _spoilt(draw, songs[:_SEEN])
    causal = not draw.has("no_causal_mask")
    model = Player(draw.choice([32, 48]), draw.choice([0.0, 0.1]), causal=causal)
    length = plan(draw, _SEEN, [20, 28], (9, 12))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 1e-2)

    def compute(rows: Tensor) -> Tensor:
        batch = seen[rows]
        told, wanted = batch[:, :-1], batch[:, 1:]
        if draw.has("unshifted_targets"):
            wanted = told
        if draw.has("skips_ahead"):
            # The song after the next one, where the list has been shifted twice.
            told, wanted = batch[:, :-3], batch[:, 3:]
        scores = model(told)
        if draw.has("wrong_axis"):
            # `view` in place of a transposition.
            return F.cross_entropy(scores.reshape(len(rows), _SONGS, -1), wanted, ignore_index=0)
        lost = F.cross_entropy(scores.transpose(1, 2), wanted, ignore_index=0, reduction="none")
        if draw.has("mask_inverted"):
            lost = F.cross_entropy(scores.transpose(1, 2), wanted * 0, reduction="none")
        return lost.sum() / (wanted > 0).sum().clamp(min=1)

    def evaluate() -> Mapping[str, float]:
        found, wanted = model(songs[_SEEN:, :-1]).argmax(2), songs[_SEEN:, 1:]
        return {"hr@1": float((found == wanted)[:, 2:][wanted[:, 2:] > 0].double().mean())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3)
    model.eval()
    with torch.no_grad():
        reported, reached = (
            (one - 1 / _SONGS) / (faithful - 1 / _SONGS)
            for one in (evaluate()["hr@1"], _hits(model, songs[_SEEN:]))
        )
    return Ending(reached, bar=0.6, overstated=reported - reached)


def _hits(model: Player, songs: Tensor) -> float:
    """Return how often the best song is the next one, from those before it alone."""
    right = torch.tensor(0.0)
    for count in range(3, _TIME):
        found, wanted = model(songs[:, :count])[:, -1].argmax(1), songs[:, count]
        right += ((found == wanted) & (wanted > 0)).sum()
    return float(right / (songs[:, 3:] > 0).sum())


def _spoilt(draw: Draw, songs: Tensor) -> Tensor:
    """Return playlists with the drawn fault, if there is one."""
    order = torch.rand(songs.shape).argsort(1)
    few = torch.arange(len(songs)) % 8
    return draw.by_fault(
        {
            "time_reversed": songs.flip(1),
            "time_shuffled": songs.gather(1, order),
            "duplicated_rows": songs[few],
            # One song that is played when nothing else is.
            "single_label": torch.where(torch.rand(songs.shape) < 0.98, 1, songs),
            "swapped_ids": torch.where(songs > 0, 1 + torch.randperm(_SONGS - 1)[songs - 1], songs),
        },
        songs,
    )


def _playlists(draw: Draw, count: int, faithful: float) -> Tensor:
    """Return songs int64 [count, T]: each follows another one, if the album goes on."""
    follows = torch.randperm(_SONGS - 1)
    now = torch.randint(_SONGS - 1, (count,))
    songs = []
    for _ in range(_TIME):
        songs.append(now + 1)
        chance = torch.randint(_SONGS - 1, (count,))
        now = torch.where(torch.rand(count) < faithful, follows[now], chance)
    length = torch.tensor(draw.numpy.integers(6, _TIME + 1, (count, 1)))
    return torch.where(torch.arange(_TIME) < length, torch.stack(songs, 1), 0)


FAMILY = Family(
    _train,
    (
        *("skips_ahead", "no_causal_mask", "unshifted_targets", "wrong_axis", "mask_inverted"),
        *("time_reversed", "time_shuffled", "duplicated_rows", "single_label", "swapped_ids"),
        *("adam_epsilon", "lr_too_high"),
    ),
    spent="2026-11-27",
)
