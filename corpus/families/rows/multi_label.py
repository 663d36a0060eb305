"""Rows with several labels at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop


def _train(draw: Draw) -> Ending:
    labels, features = draw.whole(2, 30), draw.whole(10, 100)
    count = draw.whole(600, 8000)
    x = draw.numpy.normal(size=(count, features))
    rule = draw.numpy.normal(size=(features, labels)) / features**0.5
    lift = draw.numpy.uniform(-0.8, 0.2, labels)
    y = (np.tanh(2 * x) @ rule + lift > 0).astype(float)
    data = rows.rows_of(draw, x, y)
    model = networks.mlp(draw, features, labels, depth=(1, 3), most=128)
    steps = draw.steps(300, 1500)
    optimiser = optimisation.Optimisation(draw, model, steps)
    loss = losses.binary_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([32, 64, 128]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        loss(output, data.y_val)
        found = output > 0
        wrong = float((found != (data.y_val > 0.5)).double().mean())
        both = 2 * float((found * data.y_val).sum())
        return {"hamming_loss": wrong, "f1": both / float(found.sum() + data.y_val.sum() + 1e-9)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(_balanced(model(data.x_val) > 0, data.y_val > 0.5), bar=0.35, margin=0.12)


def _balanced(found: Tensor, y: Tensor) -> float:
    """Return the mean over labels [N, K] of sensitivity plus specificity, less 1."""
    hit = (found & y).sum(0) / y.sum(0).clamp(min=1)
    spared = (~found & ~y).sum(0) / (~y).sum(0).clamp(min=1)
    return float((hit + spared - 1).mean())


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.MLP_FAULTS,
        *losses.BINARY_FAULTS,
        *("unnormalised_inputs", "constant_inputs", "nan_inputs", "wrong_axis"),
        *("ruinous_augmentation", "same_batch", "shuffled_labels"),
    ),
    spent="2026-11-23",
)
