"""Kinds of plankton by their outlines: a plain stack of convolutions, and a loss by formula.

After Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
ICLR 2015; the plankton is drawn.

Shape legend: N pictures of 14 x 14 pixels, C kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _KINDS, _SEEN = 14, 5, 800


def _train(draw: Draw) -> Ending:
    x, y = _plankton(draw, 1100)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model, head = _network(draw, draw.choice([12, 16]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 13))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)

    def surprise(scores: Tensor, wanted: Tensor) -> Tensor:
        axis = 0 if draw.has("softmax_wrong_axis") else 1
        logs = scores - scores.logsumexp(axis, keepdim=True)
        one_hot = torch.eye(_KINDS)[wanted]
        if draw.has("wrong_loss"):
            # The mean of all kinds, and not of the wanted one.
            return -logs.mean()
        return -(one_hot * logs).sum(1).mean()

    loss = draw.watch.loss(surprise)

    def compute(rows: Tensor) -> Tensor:
        return loss(model(seen[rows]), known[rows])

    def evaluate() -> Mapping[str, float]:
        return {"eval/accuracy": accuracy(model(x[_SEEN:]), y[_SEEN:])}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, labels=known)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["eval/accuracy"], 1 / _KINDS), bar=0.65)


def _network(draw: Draw, width: int) -> tuple[nn.Module, nn.Module]:
    """Return a network, and its last layer."""
    deep = draw.amount.randint(7, 9) if draw.has("vanishing") else 1
    bend: type[nn.Module] = nn.Sigmoid if draw.has("vanishing") else nn.ReLU
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), bend(), nn.MaxPool2d(2)]
    for _ in range(deep):
        layers += [nn.Conv2d(width, width, 3, padding=1), bend()]
    if draw.has("too_small_model"):
        layers += [nn.Conv2d(width, 1, 1), bend(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        width = 1
    else:
        layers += [nn.MaxPool2d(2), nn.Flatten()]
        width *= 9
    head = nn.Linear(width, _KINDS)
    return nn.Sequential(*layers, head), head


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures with the drawn fault, if there is one."""
    shuffled = y[torch.randperm(len(y))]
    # Each picture is cut out around another place, mostly an empty one.
    empty = torch.zeros_like(x)
    empty[:, :, :2, :2] = x[:, :, :2, :2]
    return draw.by_fault(
        {
            "shuffled_labels": (x, shuffled),
            "ruinous_window": (empty, y),
        },
        (x, y),
    )


def _plankton(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 1, 14, 14] and kinds int64 [count]: numbers of arms."""
    y = torch.randint(_KINDS, (count,))
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across = place + torch.randn(count, 1, 1)
    down = place[:, None] + torch.randn(count, 1, 1)
    angle = torch.atan2(down, across) + 2 * math.pi * torch.rand(count, 1, 1)
    reach = 3.6 + 1.8 * torch.cos((y[:, None, None] + 1) * angle)
    body = ((reach - torch.hypot(across, down)) * 2).sigmoid()
    noise = draw.between(0.15, 0.3) * torch.randn(count, _SIDE, _SIDE)
    return (2 * body - 0.8 + noise)[:, None], y


FAMILY = Family(
    _train,
    (
        *("ruinous_window", "softmax_wrong_axis", "wrong_loss", "vanishing", "dead_relu"),
        *("large_init", "too_small_model", "adam_epsilon", "not_shuffled", "batch_too_large"),
    ),
    spent="2026-11-27",
)
