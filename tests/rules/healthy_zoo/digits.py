"""Healthy trainings on handwritten digits: kinds of networks, optimizers, schedules, precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim import LBFGS, SGD, Adagrad, Adam, AdamW, RAdam
from torch.optim.lr_scheduler import CosineAnnealingLR, CyclicLR, LambdaLR, OneCycleLR, SequentialLR

from tests.rules.healthy_zoo.data import batches, digits
from tests.rules.healthy_zoo.loop import Loop, accuracy, seeded, watched
from tests.rules.healthy_zoo.models import ResNet, cnn, perceptron
from tests.rules.trainings import RowReader

__all__ = ["DIGITS"]

_Optimizer = Callable[[Any], torch.optim.Optimizer]


def _classify(
    store: Path,
    seed: int,
    model: Callable[[], nn.Module],
    optimizer: _Optimizer,
    *,
    at_least: float = 0.93,
    image: bool = False,
    loss: Callable[[], nn.Module] = nn.CrossEntropyLoss,
    **loop: Any,
) -> None:
    """Train on the digits, and assert a minimum accuracy on held-out digits."""
    seeded(seed)
    split, network = digits(image=image), model()
    Loop(split, loss(), **loop).run(store, seed, network, optimizer(network.parameters()))
    with torch.no_grad():
        reached = accuracy(network(split.x_held), split.y_held)
    assert reached >= at_least, f"accuracy {reached:.3f}"


def _mlp(store: Path, seed: int) -> None:
    """The simplest case: two layers and Adam."""
    _classify(store, seed, partial(perceptron, 64, 64, 10), partial(Adam, lr=1e-3))


def _cnn(store: Path, seed: int) -> None:
    """Two convolutions, SGD with momentum; reports no metric."""
    _classify(
        store, seed, cnn, partial(SGD, lr=0.05, momentum=0.9), image=True, steps=500, metric=None
    )


def _cnn_dropout(store: Path, seed: int) -> None:
    """The training loss is always above the evaluation loss."""
    _classify(store, seed, partial(cnn, dropout=0.5), partial(Adam, lr=2e-3), image=True, steps=500)


def _resnet(store: Path, seed: int) -> None:
    """Residual blocks, batch normalisation, in-place activations."""
    _classify(store, seed, ResNet, partial(Adam, lr=3e-3), image=True, steps=300, batch=32)


def _deep_tanh(store: Path, seed: int) -> None:
    """Eleven layers: the gradient grows on its way back."""

    def model() -> nn.Module:
        network = perceptron(64, *[32] * 10, 10, activation=nn.Tanh)
        for layer in network:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, gain=nn.init.calculate_gain("tanh"))
        return network

    _classify(store, seed, model, partial(Adam, lr=1e-3), at_least=0.88)


def _deep_sigmoid(store: Path, seed: int) -> None:
    """Five sigmoid layers with weights large enough for the gradient."""

    def model() -> nn.Module:
        network = perceptron(64, *[48] * 4, 10, activation=nn.Sigmoid)
        for layer in network:
            if isinstance(layer, nn.Linear):
                # A sigmoid has a slope of 1/4 at most.
                nn.init.xavier_normal_(layer.weight, gain=4.0)
                # Its outputs have mean 1/2, so the bias gives the next layer inputs of mean 0.
                with torch.no_grad():
                    layer.bias.copy_(-0.5 * layer.weight.sum(1))
        return network

    _classify(store, seed, model, partial(Adam, lr=5e-3), at_least=0.85, steps=800)


def _gru(store: Path, seed: int) -> None:
    """Reads the rows of a digit one after another."""
    _classify(store, seed, RowReader, partial(Adam, lr=5e-3), steps=500)


def _tiny_batches(store: Path, seed: int) -> None:
    """Four rows per step: a noisy loss."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 32, 10),
        partial(SGD, lr=0.02),
        steps=1500,
        batch=4,
        at_least=0.88,
    )


def _weight_decay(store: Path, seed: int) -> None:
    """Strong but useful decay: weights shrink, and the loss stays well above zero."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 128, 10),
        partial(SGD, lr=0.1, momentum=0.9, weight_decay=1e-2),
        steps=800,
        at_least=0.9,
    )


def _label_smoothing(store: Path, seed: int) -> None:
    """The loss cannot fall below that of the smoothed labels, 0.5."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(Adam, lr=2e-3),
        loss=partial(nn.CrossEntropyLoss, label_smoothing=0.1),
    )


def _raw_pixels(store: Path, seed: int) -> None:
    """Pixels from 0 to 255; batch normalisation comes before the first layer."""
    seeded(seed)
    split, model = digits(), nn.Sequential(nn.BatchNorm1d(64), perceptron(64, 64, 10))
    raw = split._replace(x=255 * split.x, x_held=255 * split.x_held)
    Loop(raw, nn.CrossEntropyLoss()).run(store, seed, model, SGD(model.parameters(), lr=0.1))
    with torch.no_grad():
        assert accuracy(model(raw.x_held), raw.y_held) >= 0.93


def _log_softmax(store: Path, seed: int) -> None:
    """A network with ELU and a final log-softmax, and the matching loss."""

    def model() -> nn.Module:
        return nn.Sequential(perceptron(64, 64, 10, activation=nn.ELU), nn.LogSoftmax(1))

    _classify(store, seed, model, partial(Adam, lr=2e-3), loss=nn.NLLLoss)


def _margin_loss(store: Path, seed: int) -> None:
    """A hinge loss over ten classes, which ends at exactly zero for most batches."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(Adam, lr=3e-3),
        loss=nn.MultiMarginLoss,
        steps=800,
    )


def _overtrained(store: Path, seed: int) -> None:
    """Continues long after convergence without harm."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(SGD, lr=0.2, momentum=0.9),
        steps=2000,
        evaluate_every=100,
    )


def _warm_up_cosine(store: Path, seed: int) -> None:
    """The learning rate rises for 100 steps, then falls to zero."""
    steps = 600

    def schedule(optimizer: torch.optim.Optimizer) -> SequentialLR:
        rising = LambdaLR(optimizer, lambda step: max(step, 1) / 100)
        falling = CosineAnnealingLR(optimizer, steps - 100)
        return SequentialLR(optimizer, [rising, falling], [100])

    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(SGD, lr=0.2, momentum=0.9),
        steps=steps,
        schedule=schedule,
    )


def _late_warm_up(store: Path, seed: int) -> None:
    """A learning rate close to zero for 120 steps."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(SGD, lr=0.5),
        steps=600,
        schedule=lambda one: LambdaLR(one, lambda t: min(1.0, max(1e-4, (t - 120) / 200))),
    )


def _one_cycle(store: Path, seed: int) -> None:
    """The learning rate rises until the loss gets noisy, then falls (Smith and Topin, 2018)."""
    _classify(
        store,
        seed,
        cnn,
        partial(SGD, lr=0.02, momentum=0.9),
        image=True,
        steps=500,
        schedule=lambda one: OneCycleLR(one, max_lr=0.3, total_steps=501),
    )


def _cyclic(store: Path, seed: int) -> None:
    """The learning rate alternates between two values, and the loss follows."""
    _classify(
        store,
        seed,
        partial(perceptron, 64, 64, 10),
        partial(SGD, lr=0.01, momentum=0.9),
        steps=900,
        schedule=lambda one: CyclicLR(one, base_lr=0.01, max_lr=0.5, step_size_up=75),
    )


def _adagrad(store: Path, seed: int) -> None:
    """Steps that shrink continually."""
    _classify(store, seed, partial(perceptron, 64, 64, 10), partial(Adagrad, lr=0.05))


def _radam(store: Path, seed: int) -> None:
    """A built-in warm-up; no evaluations."""
    _classify(
        store, seed, partial(perceptron, 64, 64, 10), partial(RAdam, lr=5e-3), evaluate_every=0
    )


def _lbfgs(store: Path, seed: int) -> None:
    """Calls the model several times per step; all data in one batch, no metric."""
    seeded(seed)
    split, model, loss = digits(), perceptron(64, 16, 10), nn.CrossEntropyLoss()
    x, y = split.x[:400], split.y[:400]
    optimizer = LBFGS(model.parameters(), lr=0.2, max_iter=2, history_size=5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value: torch.Tensor = loss(model(x), y)
        # Without a penalty it diverges to where the logarithm is flat.
        (value + 1e-3 * sum((parameter**2).sum() for parameter in model.parameters())).backward()
        return value.detach()

    with watched(store) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(300):
            optimizer.step(closure)
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.85


def _accumulation(store: Path, seed: int) -> None:
    """Four batches of 16 per step, and a scaled loss."""
    seeded(seed)
    split, model, loss = digits(), perceptron(64, 64, 10), nn.CrossEntropyLoss()
    optimizer = Adam(model.parameters(), lr=2e-3)
    rows = batches(len(split.x), 16, seed)
    with watched(store, lr=2e-3, accumulation=4) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(400):
            if step % 50 == 0:
                model.eval()
                with torch.no_grad():
                    loss(model(split.x_held), split.y_held)
                model.train()
            optimizer.zero_grad()
            for _ in range(4):
                chosen = next(rows)
                (loss(model(split.x[chosen]), split.y[chosen]) / 4).backward()
            optimizer.step()
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.93


def _bfloat16(store: Path, seed: int) -> None:
    """Automatic mixed precision on the CPU; clipped gradients, accuracy per batch."""
    seeded(seed)
    split, model = digits(image=True), cnn()
    optimizer = AdamW(model.parameters(), lr=3e-3)
    rows = batches(len(split.x), 64, seed)
    with watched(store, lr=3e-3) as hook:
        loss_fn = hook.loss(functional.cross_entropy)
        hook.watch(model, optimizer=optimizer)
        for _ in range(400):
            chosen = next(rows)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = model(split.x[chosen])
                loss = loss_fn(outputs, split.y[chosen])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            # The hook records it in the next step, at the end in one without a loss.
            hook.metric("accuracy", accuracy(outputs, split.y[chosen]))
    with torch.no_grad():
        assert accuracy(model(split.x_held), split.y_held) >= 0.93


DIGITS = {
    "mlp": _mlp,
    "cnn": _cnn,
    "cnn_dropout": _cnn_dropout,
    "resnet": _resnet,
    "deep_tanh": _deep_tanh,
    "deep_sigmoid": _deep_sigmoid,
    "gru": _gru,
    "tiny_batches": _tiny_batches,
    "weight_decay": _weight_decay,
    "label_smoothing": _label_smoothing,
    "raw_pixels": _raw_pixels,
    "log_softmax": _log_softmax,
    "margin_loss": _margin_loss,
    "overtrained": _overtrained,
    "warm_up_cosine": _warm_up_cosine,
    "late_warm_up": _late_warm_up,
    "one_cycle": _one_cycle,
    "cyclic": _cyclic,
    "adagrad": _adagrad,
    "radam": _radam,
    "lbfgs": _lbfgs,
    "accumulation": _accumulation,
    "bfloat16": _bfloat16,
}
