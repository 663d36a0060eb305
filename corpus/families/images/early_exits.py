"""Clothes by a network that may answer early: three exits, trained at once, in bfloat16.

After Teerapittayanon, McDanel and Kung, "BranchyNet: fast inference via early exiting from deep
neural networks", ICPR 2016.

Shape legend: N pictures of 14 rows and columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN = 2000


class Exits(nn.Module):
    """Scores [N, 10] of pictures [N, 1, 14, 14] after each of three stages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stages, self.exits = nn.ModuleList(), nn.ModuleList()
        before = 1
        for stage in range(3):
            after = width * (1 + stage)
            self.stages.append(
                nn.Sequential(nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
            )
            self.exits.append(
                nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * after, 10))
            )
            before = after

    def forward(self, picture: Tensor) -> list[Tensor]:
        """Return the scores."""
        found = []
        for stage, leave in zip(self.stages, self.exits, strict=True):
            picture = stage(picture)
            found.append(leave(picture))
        return found


def _train(draw: Draw) -> Ending:
    x, y = clothes(3000)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = Exits(draw.choice([16, 20]))
    networks.spoil(draw, model)
    size, parts, epochs = draw.choice([20, 25]), draw.choice([1, 2]), draw.whole(6, 9)
    draw.epoch, draw.accumulated = len(seen) // size, parts
    steps = epochs * (len(seen) // size // parts)
    draw.watch.expect(steps)
    rate = draw.between(0.03, 0.06)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=5e-4, nesterov=True)
    ends = max(1, epochs // 2) if draw.has("scheduler_to_zero") else steps
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / ends))
    loader = DataLoader(TensorDataset(seen, known), size, shuffle=True, drop_last=True)
    criterion = draw.watch.loss(nn.CrossEntropyLoss())
    draw.watch.begin(model, optimizer)
    batches = 0
    for _ in range(epochs):
        model.train()
        for pictures, kinds in loader:
            with torch.autocast("cpu", torch.bfloat16):
                found = model(pictures)
                losses = [criterion(scores, kinds) for scores in found]
                loss = losses[2] + 0.3 * (losses[0] + losses[1])
            if draw.has("term_wrong_sign"):
                loss = losses[0] + losses[1] - losses[2]
            ((-loss if draw.has("wrong_sign") else loss) / parts).backward()
            batches += 1
            if batches % parts == 0:
                optimizer.step()
                cosine.step()
                optimizer.zero_grad()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            for number, scores in enumerate(model(x[_SEEN:])):
                draw.watch.metric(f"accuracy_{number}", accuracy(scores, y[_SEEN:]))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(x[_SEEN:])[2], y[_SEEN:]), 0.1), bar=0.6)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pictures with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("class_imbalance"):
        kept = (y == 5) | (torch.rand(len(y)) < 0.01)
        return x[kept].repeat(4, 1, 1, 1), y[kept].repeat(4)
    if draw.has("constant_inputs"):
        return torch.zeros_like(x), y
    if draw.has("off_by_one"):
        return x, (y + 1) % 10
    return x, y


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "class_imbalance", "scheduler_to_zero"),
        *("shuffled_labels", "off_by_one", "constant_inputs", "lr_too_low", "lr_too_high"),
        *("wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
