"""Batch normalization of each rank's own rows: `python -m benchmarks.batch_norm`.

Two data-parallel ranks, computed in one process: each normalizes its half of the rows, the gradient
is the mean of both, and the running statistics are those of rank 0, as under
`DistributedDataParallel`. Beside it, both halves normalized together, as by `nn.SyncBatchNorm`. The
figures are accuracies on 597 other handwritten digits: mean, least and greatest of three seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.measure import table

_STEPS, _SEEDS, _TRAINED = 400, 3, 1200


def perceptron() -> nn.Module:
    """Return layers whose statistics have one value per row."""
    layers = (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())
    more = (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())
    return nn.Sequential(*layers, *more, nn.Linear(64, 10))


def convolutions() -> nn.Module:
    """Return layers whose statistics have 64 and 16 values per row."""
    layers = (nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    more = (nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layers, *more, *last)


def accuracy(
    make: Callable[[], nn.Module], x: Tensor, y: Tensor, rows: int, seed: int, *, together: bool
) -> float:
    """Train; return the share of the other rows that are classified rightly.

    Args:
        x: float32 [digits, 64].
        y: int64 [digits].
        rows: of each rank and step.
        together: whether both ranks' rows are normalized together.
    """
    torch.manual_seed(seed)
    model, loss = make(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _STEPS)
    for _ in range(_STEPS):
        chosen = torch.randint(_TRAINED, (2 * rows,))
        optimizer.zero_grad()
        for rank, own in enumerate([chosen] if together else chosen.chunk(2)):
            before = [one.clone() for one in model.buffers()]
            (loss(model(x[own]), y[own]) * len(own) / len(chosen)).backward()
            for buffer, kept in zip(model.buffers(), before, strict=True):
                buffer.copy_(kept if rank else buffer)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        return float((model(x[_TRAINED:]).argmax(1) == y[_TRAINED:]).float().mean())


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    digits = load_digits()
    order = torch.randperm(len(digits.data), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    y = torch.tensor(digits.target)[order]
    found = []
    for make in (perceptron, convolutions):
        for rows in (2, 4, 8, 32):
            row = [make.__name__, str(rows)]
            for together in (False, True):
                each = [
                    accuracy(make, x, y, rows, seed, together=together) for seed in range(_SEEDS)
                ]
                row.append(f"{sum(each) / _SEEDS:.3f} ({min(each):.3f} to {max(each):.3f})")
            found.append(row)
    print(table(found, ("model", "rows per rank", "own rows", "all ranks' rows")))


if __name__ == "__main__":
    main()
