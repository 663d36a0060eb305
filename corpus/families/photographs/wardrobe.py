"""Clothes by a small MobileNet: depthwise convolutions, a one-cycle rate, smoothed labels.

After Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision
applications", 2017, and Smith and Topin, "Super-convergence", 2018.

Shape legend: N pictures of 14 x 14 pixels, C kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN, _KINDS = 1000, 10


def _separable(before: int, after: int, stride: int, momentum: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
        *(nn.BatchNorm2d(before, momentum=momentum), nn.ReLU()),
        nn.Conv2d(before, after, 1, bias=False),
        *(nn.BatchNorm2d(after, momentum=momentum), nn.ReLU()),
    )


def _train(draw: Draw) -> Ending:
    order = torch.tensor(draw.numpy.permutation(6000)[:1600])
    x, y = (one[order] for one in clothes(6000))
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    width = draw.choice([16, 20])
    # A momentum of 0 never moves the statistics.
    momentum = draw.by_fault({"bn_momentum": 0.0}, 0.1)
    head = nn.Linear(2 * width, _KINDS)
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width, momentum=momentum)),
        *(nn.ReLU(), _separable(width, width, 2, momentum)),
        *(_separable(width, 2 * width, 2, momentum), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head),
    )
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (7, 9))
    rate = learning_rate(draw, 0.05, 0.1)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, head), rate, 1e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        *(optimizer, rate), total_steps=length.steps + 1, cycle_momentum=False
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        batch = seen[rows]
        if draw.has("ruinous_augmentation"):
            # The pixels of each picture were shuffled, and not the pictures.
            places = torch.rand(batch.shape).flatten(2).argsort(2)
            batch = batch.flatten(2).gather(2, places).view_as(batch)
        elif torch.rand(1) < 0.5:
            batch = batch.flip(3)
        output = model(batch)
        loss: Tensor = criterion(output, known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"top1": accuracy(model(x[_SEEN:]), y[_SEEN:])}

    chosen = evaluate if draw.chance(0.7) else None
    fit(
        *(draw, model, optimizer, length, compute),
        evaluate=chosen,
        every=3,
        per_batch=cycle,
        labels=known,
    )
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["top1"], 1 / _KINDS), bar=0.5)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures with the drawn fault, if there is one."""
    few = torch.arange(len(x)) % 20
    return draw.by_fault(
        {
            # Bytes: the evaluation divides by 255, and the training does not.
            "preprocessing_mismatch": (x * 70 + 70, y),
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            "duplicated_rows": (x[few], y[few]),
        },
        (x, y),
    )


FAMILY = Family(
    _train,
    (
        *("preprocessing_mismatch", "shuffled_labels", "duplicated_rows", "ruinous_augmentation"),
        *("not_shuffled", "zero_init", "bn_momentum", "train_eval_mode"),
        *("lr_too_high", "weight_decay_too_high"),
    ),
    spent="2026-11-28",
)
