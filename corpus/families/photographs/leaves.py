"""Diseases of leaves by their textures: a residual network, averaged weights, and SGD.

After He et al., "Deep residual learning for image recognition", CVPR 2016, and Mohanty, Hughes and
Salathé, "Using deep learning for image-based plant disease detection", Frontiers in Plant Science
2016; the leaves are drawn.

Shape legend: N pictures of 3 colours and 12 x 12 pixels, C diseases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _KINDS, _SEEN = 12, 4, 640


class Block(nn.Module):
    """Two convolutions, added to what goes past them."""

    def __init__(self, width: int, momentum: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, momentum=momentum) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the shape of x."""
        inner = self.norms[0](self.first(x)).relu()
        added: Tensor = self.norms[1](self.second(inner))
        return (x + added).relu()


def _train(draw: Draw) -> Ending:
    x, y = _leaves(draw, 900)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    # Keras' momentum of 0.99 is 0.01 here; 1e-5 forgets nothing of what it began with.
    momentum = draw.by_fault({"bn_momentum": 1e-5}, 0.1)
    width = draw.choice([10, 12])
    head = nn.Linear(width, _KINDS)
    model = nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, momentum=momentum)),
        *(nn.ReLU(), Block(width, momentum), nn.MaxPool2d(2), Block(width, momentum)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head),
    )
    length = plan(draw, _SEEN, [20, 32], (7, 9))
    rate = learning_rate(draw, 0.03, 0.06)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, head), rate, 5e-4)
    # The unit of the fault is an epoch, and not a batch.
    over = length.epochs if draw.has("scheduler_to_zero") else length.steps
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(step / over, 1.0))
    )
    ema = torch.optim.swa_utils.AveragedModel(
        model,
        multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(
            draw.by_fault({"average_reversed": 0.99999}, 0.9)
        ),
        use_buffers=True,
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        loss: Tensor = criterion(model(_augmented(draw, seen[rows])), known[rows])
        return loss

    def follow() -> None:
        if not draw.has("stale_average"):
            ema.update_parameters(model)

    def evaluate() -> Mapping[str, float]:
        return {"top1": accuracy(ema(x[_SEEN:]), y[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_batch=cosine, after=follow)
    ema.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["top1"], 1 / _KINDS), bar=0.65)


def _augmented(draw: Draw, x: Tensor) -> Tensor:
    """Return pictures that are mirrored, or not, and a little brighter or darker."""
    x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    if draw.has("ruinous_augmentation"):
        # The strength of the noise is one of bytes, not of standardised pictures.
        return x + 25 * torch.randn_like(x)
    return x * (1 + 0.1 * torch.randn(len(x), 1, 1, 1))


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # The names of the folders were sorted, those of the test not.
            "off_by_one": (x, (y + 1) % _KINDS),
        },
        (x, y),
    )


def _leaves(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return standardised pictures float32 [count, 3, 12, 12] and diseases int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    place = torch.arange(_SIDE)
    phase = 2 * math.pi * torch.rand(count, 2, 1, 1)
    across = torch.sin(1.6 * place + phase[:, 0]).expand(count, _SIDE, _SIDE)
    down = torch.sin(1.6 * place[:, None] + phase[:, 1]).expand(count, _SIDE, _SIDE)
    # Stripes one way, the other way, both, or spots where both are high.
    kinds = torch.stack([across, down, (across + down) / 1.4, torch.maximum(across, down) - 0.4], 1)
    texture = kinds[torch.arange(count), y]
    light = 0.4 * torch.randn(count, 3, 1, 1)
    green = torch.tensor([0.4, 1.0, 0.2])[:, None, None]
    noise = draw.between(0.5, 0.7) * torch.randn(count, 3, _SIDE, _SIDE)
    x = texture[:, None] * green + light + noise
    return (x - x.mean()) / x.std(), y


FAMILY = Family(
    _train,
    (
        *("average_reversed", "stale_average", "bn_momentum", "ruinous_augmentation"),
        *("scheduler_to_zero", "weight_decay_too_high", "same_batch"),
        *("lr_too_high", "wrong_parameters", "off_by_one"),
    ),
    spent="2026-11-27",
)
