"""Trainings with one fault or none, and the factories that build them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from tests.replay.stories import HalfLoss
from vinedresser.capture import Hook
from vinedresser.replay.batch import Batch
from vinedresser.snapshots.settings import SnapshotSettings

Step = Callable[[Batch], Tensor]


def samples(step: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Return rows [size, 12] of four classes, and the classes [size]."""
    generator = torch.Generator().manual_seed(step)
    centers = 0.7 * torch.randn(4, 12, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(0, 4, (size,), generator=generator)
    return centers[labels] + torch.randn(size, 12, generator=generator), labels


def network() -> nn.Module:
    """Build a classifier of `samples`."""
    return nn.Sequential(
        nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )


def fast() -> tuple[nn.Module, nn.Module, Optimizer]:
    """Build a training whose learning rate is far too high."""
    model = network()
    return model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=2.0, momentum=0.9)


SLOW_CLOCK = [0.0]
"""Time in seconds at which `slow_changes` is."""


def slow_changes() -> tuple[nn.Module, Optimizer, Step]:
    """Build `fast`, whose steps take a second, or five with another learning rate."""
    model, loss_fn, optimizer = fast()

    def step(batch: Batch) -> Tensor:
        SLOW_CLOCK[0] += 1.0 if optimizer.param_groups[0]["lr"] == 2.0 else 5.0
        loss = loss_fn(model(*batch.args), batch.loss_args[1])
        loss.backward()
        return torch.as_tensor(loss)

    return model, optimizer, step


class InOrder(nn.Module):
    """Refuses rows that are not those of `samples(0)`."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows [batch, features]."""
        if not torch.equal(rows, samples(0)[0]):
            raise ValueError("not the rows of the batch")
        return rows


def only_in_order() -> tuple[nn.Module, Optimizer, Step]:
    """Build `fast`, whose step fails with samples in another order."""
    model, loss_fn, optimizer = fast()
    check = InOrder()
    assert isinstance(model, nn.Sequential)
    model[0].register_forward_pre_hook(lambda _, args: (check(*args),))

    def step(batch: Batch) -> Tensor:
        loss = loss_fn(model(*batch.args), batch.loss_args[1])
        loss.backward()
        return torch.as_tensor(loss)

    return model, optimizer, step


def gathering() -> tuple[nn.Module, Optimizer, Step]:
    """Build a training that never clears its gradients."""
    model = network()
    optimizer = SGD(model.parameters(), lr=1.0)

    def step(batch: Batch) -> Tensor:
        loss = nn.functional.cross_entropy(model(*batch.args), batch.loss_args[1])
        loss.backward()
        optimizer.step()
        return torch.as_tensor(loss)

    return model, optimizer, step


def halves() -> tuple[nn.Module, nn.Module]:
    """Build the regression whose loss overflows; its optimizer is that of the snapshot."""
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1)), HalfLoss()


_HEALTHY: list[tuple[str, Callable[[Any], Optimizer], bool]] = [
    ("sgd", partial(SGD, lr=0.1), False),
    ("momentum", partial(SGD, lr=0.02, momentum=0.9), False),
    ("adam", partial(Adam, lr=3e-3), False),
    ("adamw with dropout", partial(AdamW, lr=3e-3), True),
    ("rmsprop with dropout", partial(RMSprop, lr=1e-3), True),
]


def healthy(number: int) -> tuple[nn.Module, nn.Module, Optimizer]:
    """Build one of several healthy trainings, by number."""
    _, optimizer, drops = _HEALTHY[number % len(_HEALTHY)]
    layers: list[nn.Module] = [nn.Linear(12, 24), nn.ReLU()]
    layers += [nn.Dropout(0.2)] if drops else [nn.BatchNorm1d(24)]
    model = nn.Sequential(*layers, nn.Linear(24, 4))
    return model, nn.CrossEntropyLoss(), optimizer(model.parameters())


healthy_0, healthy_1, healthy_2, healthy_3, healthy_4 = (partial(healthy, one) for one in range(5))


def more_batches() -> tuple[Any, ...]:
    """Build the healthy training with more batches than the recorded one."""
    return *healthy(2), [samples(step) for step in range(100, 105)]


class WithLoss(nn.Module):
    """A classifier of `samples` that computes its loss, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Return the loss."""
        return nn.functional.cross_entropy(self.network(rows), labels)


def loss_inside() -> tuple[Any, ...]:
    """Build a healthy training of `WithLoss`, with a batch for each of 40 steps."""
    model = WithLoss()
    return model, Adam(model.parameters(), lr=0.01), [samples(step) for step in range(1, 40)]


def slow() -> tuple[nn.Module, nn.Module, Optimizer]:
    """Build a healthy training whose loss falls faster with ten times its learning rate."""
    model = network()
    return model, nn.CrossEntropyLoss(), SGD(model.parameters(), lr=0.003, momentum=0.9)


def standing() -> tuple[nn.Module, nn.Module, Optimizer]:
    """Build a training whose learning rate is far too low."""
    model = network()
    return model, nn.CrossEntropyLoss(), Adam(model.parameters(), lr=1e-7)


def decayed() -> tuple[nn.Module, nn.Module, Optimizer]:
    """Build a training whose weight decay draws all weights to 0."""
    model = network()
    return model, nn.CrossEntropyLoss(), Adam(model.parameters(), lr=3e-3, weight_decay=1.0)


def unscaled(step: int, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples of which each feature [batch] is far from 0 and has a large deviation."""
    return 500 + 300 * rows, labels


def unscaled_batches() -> tuple[Any, ...]:
    """Build a training with the samples of `unscaled`, with a batch for each step."""
    model = network()
    optimizer = SGD(model.parameters(), lr=0.02, momentum=0.9)
    batches = [unscaled(step, *samples(step)) for step in range(1, 200)]
    return model, nn.CrossEntropyLoss(), optimizer, batches


def slow_batches() -> tuple[Any, ...]:
    """Build `slow` with a batch for each step."""
    return *slow(), [samples(step) for step in range(1, 200)]


def standing_batches() -> tuple[Any, ...]:
    """Build `standing` with a batch for each step."""
    return *standing(), [samples(step) for step in range(1, 200)]


def train(
    run: Path,
    parts: tuple[Any, ...],
    steps: int,
    *,
    every: int = 1000,
    change: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    clears: bool = True,
) -> None:
    """Train with periodic snapshots.

    Args:
        run: directory of the run.
        parts: model, loss module and optimizer.
        steps: number of steps.
        every: steps between two snapshots.
        change: changes the samples of a step.
        clears: whether gradients are cleared.
    """
    model, loss_fn, optimizer = parts
    settings = SnapshotSettings(every=every, keep=20)
    hook = Hook(run, guard="nonfinite", snapshots=settings)
    hook.watch(model, loss=loss_fn, optimizer=optimizer)
    for step in range(steps):
        rows, labels = samples(step)
        if change is not None:
            rows, labels = change(step, rows, labels)
        if clears:
            optimizer.zero_grad()
        loss_fn(model(rows), labels).backward()
        optimizer.step()
    hook.close()
