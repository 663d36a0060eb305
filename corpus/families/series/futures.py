"""Which future belongs to which past: summaries of a series that tell it from those of others.

After van den Oord, Li and Vinyals, "Representation learning with contrastive predictive coding",
2018.

Shape legend: N series, T times of the past and as many of the future.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_TIME, _SEEN = 24, 1500


class Summary(nn.Module):
    """Summaries [N, C] of the past, and [N, C] of the future, of series [N, 2 T]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frames = nn.Sequential(
            *(nn.Conv1d(1, width, 4, 2), nn.ReLU(), nn.Conv1d(width, width, 3, 2), nn.ReLU()),
        )
        self.context, self.future = nn.Linear(5 * width, 16), nn.Linear(5 * width, 16)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summaries."""
        past, future = series.split(_TIME, 1)
        return (
            self.context(self.frames(past[:, None]).flatten(1)),
            self.future(self.frames(future[:, None]).flatten(1)),
        )


def _train(draw: Draw) -> Ending:
    series = _series(draw, 1900)
    seen = _spoilt(draw, series[:_SEEN])
    model = Summary(draw.choice([16, 24]))
    networks.blank(draw, model)
    size, epochs = draw.choice([30, 50]), draw.whole(10, 13)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 3000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    for _ in range(epochs):
        for rows in torch.randperm(_SEEN).split(size)[: draw.epoch]:
            batch = seen[torch.arange(4)] if draw.has("same_batch") else seen[rows]
            past, future = model(batch)
            likeness = past @ future.T
            right = torch.arange(len(batch))
            if draw.has("misaligned_targets"):
                right = torch.randperm(len(batch))
            if draw.has("negatives_left_out"):
                loss = -likeness.diagonal().sigmoid().log().mean()
            elif draw.has("distance_sign"):
                loss = F.cross_entropy(-likeness, right)
            else:
                loss = F.cross_entropy(likeness, right)
            optimizer.zero_grad(set_to_none=True)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("retrieval", _found(model, series[_SEEN:]))
    with torch.no_grad():
        return Ending(gained(_found(model, series[_SEEN:]), 1 / 20), bar=0.45)


def _found(model: Summary, series: Tensor) -> float:
    """Return how often the right one of 20 futures is found."""
    past, future = (part.unflatten(0, (20, -1)).transpose(0, 1) for part in model(series))
    likeness = past @ future.transpose(1, 2)
    # Ties are in a random order.
    likeness = likeness.nan_to_num() + 1e-6 * torch.rand_like(likeness)
    return float((likeness.argmax(2) == torch.arange(20)).float().mean())


def _spoilt(draw: Draw, series: Tensor) -> Tensor:
    """Return series with the drawn fault, if there is one."""
    if draw.has("swapped_groups"):
        # The file of the futures has another order than that of the pasts.
        return torch.cat([series[:, :_TIME], series[torch.randperm(_SEEN), _TIME:]], 1)
    if draw.has("time_shuffled"):
        return series.gather(1, torch.rand_like(series).argsort(1))
    if draw.has("constant_inputs"):
        return torch.zeros_like(series)
    if draw.has("wrong_axis"):
        return series.T.reshape(series.shape)
    return series


def _series(draw: Draw, count: int) -> Tensor:
    """Return noisy swings float32 [count, 2 T], each with a pace and a phase of its own."""
    pace, phase = 0.2 + 0.6 * torch.rand(count, 1), 2 * math.pi * torch.rand(count, 1)
    swing = torch.sin(pace * torch.arange(2 * _TIME) + phase)
    return swing + draw.between(0.05, 0.15) * torch.randn_like(swing)


FAMILY = Family(
    _train,
    (
        *("swapped_groups", "distance_sign", "negatives_left_out", "misaligned_targets"),
        *("time_shuffled", "constant_inputs", "wrong_axis", "same_batch", "lr_too_low"),
        *("lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
