"""Time of one pruning round of a ResNet-18 of 11 million parameters."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
import torch_pruning
from torch import nn

from benchmarks.measure import interleave, medians, table
from benchmarks.models import resnet18
from vinedresser.pruning import prune
from vinedresser.pruning.criteria.registry import criterion_named
from vinedresser.pruning.ranking import Removal, candidates, rank
from vinedresser.pruning.torch_.prunable import TorchPrunable

__all__ = ["print_round_time"]

_FILTERS = 100


def print_round_time(rounds: int) -> None:
    """Print the time of a round beside a training step and torch-pruning's pruner."""
    torch.manual_seed(0)
    model = resnet18(64).eval()
    example = torch.randn(8, 3, 32, 32)
    work: dict[str, Callable[[], object]] = {
        "forward + backward, batch 8": partial(_forward_and_backward, model, example),
        "round: trace, rank, plan, remove": partial(_round, model, example[:1]),
        "same, with its proof": partial(prune, model, example[:1], _FILTERS),
        "torch-pruning, about as many": partial(_torch_pruning, model, example[:1]),
    }
    results = interleave({name: partial(_seconds, one) for name, one in work.items()}, rounds)
    middle = medians(results)
    step = middle["forward + backward, batch 8"]
    budgets = {"round: trace, rank, plan, remove": "<= 2"}
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"ResNet-18, {count:,} parameters, {_FILTERS} filters by l1; {rounds} rounds, medians")
    rows = [
        [name, f"{seconds:.3f}", f"{seconds / step:.2f}", budgets.get(name, "")]
        for name, seconds in middle.items()
    ]
    print(table(rows, ["arm", "s", "x forward + backward", "budget"]), "\n")


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _forward_and_backward(model: nn.Module, example: torch.Tensor) -> None:
    model.zero_grad()
    model(example).sum().backward()


def _round(model: nn.Module, example: torch.Tensor) -> None:
    prunable = TorchPrunable(model, example)
    groups = candidates(prunable.groups)
    criterion = criterion_named("l1")
    scores = rank(prunable.tensors(), groups, criterion, {})
    prunable.removed(Removal(prunable, groups, scores, "l1").plan(_FILTERS))


def _torch_pruning(model: nn.Module, example: torch.Tensor) -> None:
    """Prune a copy as torch-pruning does; it takes a ratio: 100 of 2,880 channels of groups."""
    pruner = torch_pruning.pruner.MagnitudePruner(
        copy.deepcopy(model),
        example,
        importance=torch_pruning.importance.MagnitudeImportance(p=1),
        global_pruning=True,
        pruning_ratio=_FILTERS / 2880,
        ignored_layers=[module for module in model.modules() if isinstance(module, nn.Linear)],
    )
    pruner.step()
