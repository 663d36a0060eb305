"""Rows of features, 2 to 200 classes, balanced or not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from sklearn import datasets

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop

_BUNDLED = ("iris", "wine", "breast_cancer", "digits")


def _train(draw: Draw) -> Ending:
    x, y, classes = _drawn_rows(draw)
    data = rows.rows_of(draw, x, y, classes=classes)
    x_train, y_train = data.x, data.y
    if draw.has("target_leak"):
        # A column that is made from the label, which nobody has later.
        x_train = x_train.clone()
        x_train[:, 0] = 4 * y_train / classes
    elif draw.has("overfitting"):
        x_train, y_train = x_train[: 3 * classes], y_train[: 3 * classes]
    model = networks.mlp(draw, x.shape[1], classes, most=128)
    steps = draw.steps(200, 1500)
    optimiser = optimisation.Optimisation(draw, model, steps)
    loss = losses.class_loss(draw)
    size = draw.choice([16, 32, 64, 128, 256])
    source = rows.batches(draw, x_train, y_train, size)
    name = draw.choice(["accuracy", "val_acc", "balanced_accuracy", "error"])

    def compute() -> torch.Tensor:
        batch, labels = next(source)
        return loss(model(batch), labels)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        if with_loss:
            loss(output, data.y_val)
        value = accuracy(output, data.y_val)
        return {name: 1 - value if name == "error" else value}

    evaluates, with_loss = draw.chance(0.8), draw.chance(0.7)
    chosen = evaluate if evaluates else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        score = accuracy(model(data.x_val), data.y_val)
    return Ending(gained(score, 1 / classes), bar=0.6)


def _drawn_rows(draw: Draw) -> tuple[np.ndarray, np.ndarray, int]:
    """Return normalised inputs [N, F], class numbers [N], and the number of classes."""
    if draw.chance(0.35):
        x, y = getattr(datasets, f"load_{draw.choice(_BUNDLED)}")(return_X_y=True)
        spread = x.std(0)
        return (x - x.mean(0)) / np.where(spread > 0, spread, 1), y, int(y.max()) + 1
    classes = draw.whole(2, 200)
    count = max(40 * classes, draw.whole(200, 20_000))
    features = max(draw.whole(4, 300), 8 if classes < 20 else 24)
    # Classes are clusters, some with several centres.
    centres = draw.numpy.normal(size=(classes * draw.choice([1, 1, 2]), features))
    rare = draw.chance(0.3)
    weights = draw.numpy.uniform(0.2 if rare else 0.8, 1, size=len(centres))
    which = draw.numpy.choice(len(centres), size=count, p=weights / weights.sum())
    noise = draw.between(0.4, 0.9) * min(1.0, (features / 16) ** 0.5)
    x = centres[which] + noise * draw.numpy.normal(size=(count, features))
    return (x - x.mean(0)) / x.std(0), which % classes, classes


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.MLP_FAULTS,
        *losses.CLASS_FAULTS,
        *rows.INPUT_FAULTS,
        *rows.LABEL_FAULTS,
        *("target_leak", "overfitting"),
    ),
    spent="2026-11-23",
)
