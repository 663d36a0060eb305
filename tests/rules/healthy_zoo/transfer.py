"""Healthy trainings from earlier ones: frozen layers, a teacher, a checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.healthy_zoo.data import Split, batches, digits
from tests.rules.healthy_zoo.loop import Loop, accuracy, seeded, watched
from tests.rules.healthy_zoo.models import cnn, perceptron

__all__ = ["TRANSFER"]


def _taught(model: nn.Module, split: Split, seed: int, steps: int) -> nn.Module:
    """Train a model without a hook."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rows = batches(len(split.x), 64, seed)
    for _ in range(steps):
        chosen = next(rows)
        optimizer.zero_grad()
        functional.cross_entropy(model(split.x[chosen]), split.y[chosen]).backward()
        optimizer.step()
    return model


def _kinds(split: Split, least: int, below: int) -> Split:
    """Return the digits of a range, with labels from 0."""

    def cut(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        chosen = (y >= least) & (y < below)
        return x[chosen], y[chosen] - least

    return Split(*cut(split.x, split.y), *cut(split.x_held, split.y_held))


def _frozen(store: Path, seed: int) -> None:
    """Convolutions trained on 0 to 4 are frozen; a new head learns 5 to 9."""
    seeded(seed)
    split = digits(image=True)
    model = cnn()
    _taught(model, _kinds(split, 0, 5), seed, 200)
    model.requires_grad_(False)
    model[-1] = nn.Linear(256, 5)
    new = _kinds(split, 5, 10)
    optimizer = torch.optim.Adam(model[-1].parameters(), lr=3e-3)
    Loop(new, nn.CrossEntropyLoss(), steps=400, batch=32).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert accuracy(model(new.x_held), new.y_held) >= 0.93


def _distillation(store: Path, seed: int) -> None:
    """A small network learns the outputs of a large one and the labels (Hinton, 2015)."""
    seeded(seed)
    split = digits()
    teacher = _taught(perceptron(64, 128, 10), split, seed, 400).eval().requires_grad_(False)
    model, hard, soft = (
        perceptron(64, 16, 10),
        nn.CrossEntropyLoss(),
        nn.KLDivLoss(reduction="batchmean"),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = batches(len(split.x), 64, seed)
    with watched(store, lr=5e-3, temperature=4.0) as hook:
        hook.watch(model, loss=soft, optimizer=optimizer)
        for step in range(600):
            if step % 100 == 0:
                model.eval()
                with hook.mode("eval"), torch.no_grad():
                    hook.metric("accuracy", accuracy(model(split.x_held), split.y_held))
                model.train()
            chosen = next(rows)
            x, y = split.x[chosen], split.y[chosen]
            optimizer.zero_grad()
            outputs = model(x)
            told = soft((outputs / 4).log_softmax(1), (teacher(x) / 4).softmax(1))
            (16 * told + 0.1 * hard(outputs, y)).backward()
            optimizer.step()
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.92


def _resumed(store: Path, seed: int) -> None:
    """Resumes from an early checkpoint: the loss starts at a third of ln 10."""
    seeded(seed)
    split = digits()
    model = _taught(perceptron(64, 64, 10), split, seed, 60)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    Loop(split, nn.CrossEntropyLoss()).run(store, seed, model, optimizer)
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.93


def _average(store: Path, seed: int) -> None:
    """Evaluates a running average of the weights (Polyak and Juditsky, 1992)."""
    seeded(seed)
    split, model, loss_fn = digits(), perceptron(64, 64, 10), nn.CrossEntropyLoss()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = batches(len(split.x), 16, seed)
    with watched(store, lr=0.1, decay=0.99) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(800):
            if step % 100 == 0:
                with hook.mode("eval"), torch.no_grad():
                    outputs = average(split.x_held)
                    loss_fn(outputs, split.y_held)
                    hook.metric("accuracy", accuracy(outputs, split.y_held))
            chosen = next(rows)
            optimizer.zero_grad()
            loss_fn(model(split.x[chosen]), split.y[chosen]).backward()
            optimizer.step()
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast.detach(), 0.01)
    with torch.no_grad():
        assert accuracy(average(split.x_held), split.y_held) >= 0.92


TRANSFER = {
    "frozen": _frozen,
    "distillation": _distillation,
    "resumed": _resumed,
    "average": _average,
}
