"""Embeddings of two views of a row, close to each other and far from those of other rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor

from corpus import networks, optimisation
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop


def _train(draw: Draw) -> Ending:
    signal, noise = draw.choice([6, 10, 16]), draw.choice([20, 60])
    mixing = torch.randn(signal + noise, signal + noise) / (signal + noise) ** 0.5

    def views(count: int) -> tuple[Tensor, Tensor]:
        """Return two views of rows: they share the signal, but not the noise."""
        inner = torch.randn(count, signal)
        return (
            torch.cat([inner, torch.randn(count, noise)], 1) @ mixing,
            torch.cat([inner, torch.randn(count, noise)], 1) @ mixing,
        )

    model = networks.mlp(draw, signal + noise, draw.choice([16, 32]), depth=(1, 2), most=128)
    steps, size = draw.steps(150, 500), draw.choice([32, 64, 128])
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = optimisation.Optimisation(draw, model, steps, kinds=kinds, accumulates=False)
    temperature = draw.choice([0.1, 0.2, 0.5])
    if draw.has("temperature"):
        temperature = draw.extent(100, 1000)

    def loss(first: Tensor, second: Tensor) -> Tensor:
        if draw.has("collapse"):
            # Nothing keeps the rows apart.
            return 1 - (first * second).sum(1).mean()
        alike = first @ second.T / temperature
        own = torch.arange(len(alike))
        if draw.has("double_softmax"):
            alike = alike.softmax(1)
        return (F.cross_entropy(alike, own) + F.cross_entropy(alike.T, own)) / 2

    watched = draw.watch.loss(loss)

    def embedded(x: Tensor) -> Tensor:
        return F.normalize(model(x), dim=1)

    def compute() -> Tensor:
        first, second = views(size)
        if draw.has("shuffled_labels"):
            second = second[torch.randperm(size)]
        if draw.has("ruinous_augmentation"):
            second = torch.randn_like(second)
        return watched(embedded(first), embedded(second))

    run_loop(draw, model, optimiser, steps, compute=compute)
    with evaluation(draw, model):
        first, second = (embedded(one) for one in views(64))
        matched = (first @ second.T).argmax(1) == torch.arange(64)
    return Ending(float(matched.double().mean()), bar=0.4)


FAMILY = Family(
    _train,
    (
        *(one for one in optimisation.FAULTS if one != "half_underflow"),
        *networks.FAULTS,
        *("collapse", "temperature", "double_softmax", "shuffled_labels", "ruinous_augmentation"),
        *("dropout_too_high", "dead_relu", "too_small_model"),
    ),
    spent="2026-11-23",
)
