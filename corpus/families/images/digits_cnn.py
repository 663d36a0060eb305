"""A small convolutional network on images of digits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import MODE_FAULTS, accuracy, evaluation, gained, run_loop


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    x = images.reshape(-1, 1, 8, 8) / 16
    if draw.chance(0.6):
        x = (x - x.mean()) / x.std()
    data = rows.rows_of(draw, x, numbers, classes=10)
    x_train, y_train = data.x, data.y
    if draw.has("overfitting"):
        x_train, y_train = x_train[:20], y_train[:20]
    if draw.has("evaluated_on_training_rows"):
        x_train, y_train = x_train[:25], y_train[:25]
    seen = draw.has("evaluated_on_training_rows")
    x_seen, y_seen = (x_train, y_train) if seen else (data.x_val, data.y_val)
    model = _network(draw)
    steps = draw.steps(150, 700)
    optimiser = optimisation.Optimisation(draw, model, steps)
    loss = losses.class_loss(draw)
    augment = _shifted if draw.chance(0.4) else None
    source = rows.batches(draw, x_train, y_train, draw.choice([16, 32, 64]), augment)

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        output = model(x_seen)
        loss(output, y_seen)
        return {"val_accuracy": accuracy(output, y_seen)}

    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=evaluate)
    with evaluation(draw, model):
        score = gained(accuracy(model(data.x_val), data.y_val), 0.1)
        told = gained(accuracy(model(x_seen), y_seen), 0.1)
    return Ending(score, bar=0.8, margin=0.1, overstated=told - score)


def _network(draw: Draw) -> nn.Sequential:
    """Return a network of [N, 1, 8, 8] with 10 outputs."""
    width, norm = draw.choice([8, 16, 24]), draw.chance(0.6)
    dropout = draw.choice([0.0, 0.2, 0.5])
    if draw.concerns(*MODE_FAULTS):
        norm, dropout = True, 0.5
    if draw.has("dropout_too_high"):
        dropout = 0.97
    momentum = 1e-6 if draw.has("bn_momentum") else 0.1
    norm = norm or draw.concerns("bn_momentum")
    layers: list[nn.Module] = []
    for before, after in ((1, width), (width, 2 * width)):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        if norm:
            layers.append(nn.BatchNorm2d(after, momentum=momentum))
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(dropout), nn.Linear(8 * width, 10))
    networks.spoil(draw, model)
    return model


def _shifted(batch: Tensor) -> Tensor:
    """Return images [B, 1, H, W] moved by up to a pixel."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return batch.roll((down, right), dims=(2, 3))


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.FAULTS,
        *losses.CLASS_FAULTS,
        *rows.INPUT_FAULTS,
        *rows.LABEL_FAULTS,
        *MODE_FAULTS,
        *("dead_relu", "dropout_too_high", "bn_momentum", "overfitting"),
        "evaluated_on_training_rows",
    ),
    spent="2026-11-23",
)
