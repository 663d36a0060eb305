"""Criteria against random order: accuracy of a small network on digits before fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from benchmarks.measure import table
from benchmarks.pruning.digits import Data, accuracy, digits, residual, shown, train
from vinedresser.pruning import PruningError, prune
from vinedresser.pruning.criteria.registry import CRITERIA

__all__ = ["print_criteria"]

_SHARES = (10, 20, 30, 40)
_EPOCHS, _TUNING = 20, 3


def print_criteria(seeds: int) -> None:
    """Print accuracies by criterion and share, means over seeds with the smallest and largest."""
    before: dict[tuple[str, int], list[float]] = {}
    after: dict[tuple[str, int], list[float]] = {}
    unpruned = []
    for seed in range(seeds):
        draw = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        training, test = digits(draw)
        model = residual()
        train(model, training, _EPOCHS, draw)
        unpruned.append(accuracy(model, test))

        def losses(pruned: nn.Module, training: Data = training) -> Iterator[Tensor]:
            for images, labels in training.batches(torch.Generator().manual_seed(0)):
                yield F.cross_entropy(pruned(images), labels)

        for name, kind in CRITERIA.items():
            chosen = kind(seed) if name == "random" else kind()  # type: ignore[call-arg]
            for share in _SHARES:
                try:
                    pruned = prune(model, test.x[:2], f"{share}%", criterion=chosen, losses=losses)
                except PruningError as error:
                    print(f"{name}: {error}")
                    break
                before.setdefault((name, share), []).append(accuracy(pruned.model, test))
                if share == _SHARES[-1]:
                    train(pruned.model, training, _TUNING, torch.Generator().manual_seed(seed))
                    after.setdefault((name, share), []).append(accuracy(pruned.model, test))
    print(
        f"accuracy on digits, {seeds} seeds, mean (smallest - largest); unpruned {shown(unpruned)}"
    )
    rows = [
        [
            name,
            *(shown(before.get((name, share), [])) for share in _SHARES),
            shown(after.get((name, _SHARES[-1]), [])),
        ]
        for name in CRITERIA
    ]
    shares = [f"{share} % removed" for share in _SHARES]
    print(table(rows, ["criterion", *shares, f"same, {_TUNING} epochs later"]), "\n")
