"""Where discs and crosses are, by a detector of one box in each cell of a grid.

After Redmon et al., "You only look once: unified, real-time object detection", CVPR 2016, with the
focal loss of Lin et al., "Focal loss for dense object detection", ICCV 2017; in bfloat16.

Shape legend: N pictures of 24 rows and columns, 6 by 6 cells of 4 pixels, 2 kinds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_SIDE, _CELLS = 24, 6


class Targets(NamedTuple):
    """What is in each cell: there or not [N, 6, 6], kinds int64 [N, 6, 6], places [N, 2, 6, 6]."""

    there: Tensor
    kind: Tensor
    place: Tensor

    def at(self, rows: Tensor) -> Targets:
        """Return the targets of some pictures."""
        return Targets(*(one[rows] for one in self))


class Detector(nn.Module):
    """Outputs [N, 5, 6, 6] of pictures [N, 1, 24, 24]: there, two kinds, two coordinates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, width, 5, 2, 2), nn.GroupNorm(2, width), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(2, 2 * width), nn.ReLU()),
            *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU()),
        )
        self.head = nn.Conv2d(2 * width, 5, 1)

    def forward(self, picture: Tensor) -> Tensor:
        """Return the outputs."""
        found: Tensor = self.head(self.layers(picture))
        return found


def _train(draw: Draw) -> Ending:
    pictures, targets = _pictures(draw, 1000)
    held = torch.arange(800, 1000)
    seen, known = _spoilt(draw, pictures[:800], targets.at(torch.arange(800)))
    model = Detector(draw.choice([8, 12]))
    with torch.no_grad():
        # Few cells have something in them.
        model.head.get_parameter("bias")[0] = -2.0
    networks.spoil(draw, model)
    size, parts, epochs = draw.choice([16, 20]), draw.choice([1, 2]), draw.whole(12, 18)
    draw.epoch, draw.accumulated = 800 // size, parts
    draw.watch.expect(epochs * draw.epoch // parts)
    rate = draw.between(2e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 2000.0}, 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    batches = 0
    for _ in range(epochs):
        for rows in torch.randperm(800).split(size):
            with torch.autocast("cpu", torch.bfloat16):
                found = model(seen[rows])
            losses = _losses(draw, found.float(), known.at(rows))
            loss = torch.stack(losses).sum() / parts
            (-loss if draw.has("wrong_sign") else loss).backward()
            batches += 1
            if batches % parts == 0:
                optimizer.step()
                optimizer.zero_grad()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("f1", _f1(model(pictures[held]), targets.at(held)))
    with torch.no_grad():
        return Ending(_f1(model(pictures[held]), targets.at(held)), bar=0.5)


def _losses(draw: Draw, found: Tensor, known: Targets) -> list[Tensor]:
    """Return the losses of what is there, of its kind, and of its place."""
    there, inside = found[:, 0], known.there > 0.5
    plain = F.binary_cross_entropy_with_logits(there, known.there, reduction="none")
    chance = torch.sigmoid(there)
    missed = torch.where(inside, 1 - chance, chance)
    focal = (missed.square() * plain).sum() / len(found)
    scores = found[:, 1:3].permute(0, 2, 3, 1)[inside]
    kinds = F.cross_entropy(scores, known.kind[inside])
    offset = found[:, 3:].permute(0, 2, 3, 1)[inside]
    wanted = known.place.permute(0, 2, 3, 1)[inside]
    places = F.l1_loss(offset, wanted)
    if draw.has("loss_reduction"):
        # The places count in pixels of the scan, summed over everything.
        places = 1e5 * places
    if draw.has("term_wrong_sign"):
        places = -places
    return [focal, kinds, 2 * places]


def _f1(found: Tensor, known: Targets) -> float:
    """Return F1 of the cells in which a thing of the right kind is found at its place."""
    claimed, inside = found[:, 0] > 0, known.there > 0.5
    near = (found[:, 3:] - known.place).abs().amax(1) < 0.25
    right = (claimed & inside & (found[:, 1:3].argmax(1) == known.kind) & near).sum()
    return float(2 * right / (claimed.sum() + inside.sum()))


def _spoilt(draw: Draw, pictures: Tensor, known: Targets) -> tuple[Tensor, Targets]:
    """Return pictures and targets with the drawn fault, if there is one."""
    if draw.has("swapped_coordinates"):
        swapped = Targets(*(one.transpose(-1, -2) for one in known))
        return pictures, swapped._replace(place=swapped.place.flip(1))
    if draw.has("augmented_without_targets"):
        return pictures.flip(3), known
    if draw.has("misaligned_targets"):
        return pictures, known.at(torch.randperm(len(pictures)))
    if draw.has("constant_inputs"):
        return torch.zeros_like(pictures), known
    if draw.has("unnormalised_targets"):
        # Offsets in micrometres, and not in shares of a cell.
        return pictures, known._replace(place=1e4 * known.place)
    return pictures, known


def _pictures(draw: Draw, count: int) -> tuple[Tensor, Targets]:
    """Return pictures with two or three things each, in cells of their own."""
    pictures = torch.zeros(count, _SIDE + 4, _SIDE + 4)
    there = torch.zeros(count, _CELLS, _CELLS)
    kinds = torch.randint(2, (count, _CELLS, _CELLS))
    offsets = torch.randint(4, (count, 2, _CELLS, _CELLS))
    cells = torch.rand(count, _CELLS**2).argsort(1)[:, :3]
    disc = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]])
    for at in range(count):
        for cell in cells[at, : 2 + at % 2].tolist():
            row, column = divmod(cell, _CELLS)
            there[at, row, column] = 1
            top, left = (
                int(4 * place + offset) + 1
                for place, offset in zip((row, column), offsets[at, :, row, column], strict=True)
            )
            shape = disc if kinds[at, row, column] else 1 - disc
            area = pictures[at, top : top + 3, left : left + 3]
            area.copy_(torch.maximum(area, shape))
    noisy = pictures[:, 2:-2, 2:-2] + draw.between(0.05, 0.15) * torch.randn(count, _SIDE, _SIDE)
    return noisy[:, None], Targets(there, kinds, offsets / 4 - 0.375)


FAMILY = Family(
    _train,
    (
        *("swapped_coordinates", "augmented_without_targets", "misaligned_targets"),
        *("constant_inputs", "unnormalised_targets", "loss_reduction", "term_wrong_sign"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "zero_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
