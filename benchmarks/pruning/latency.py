"""Latency of pruned models against their multiply-accumulate operations."""

from __future__ import annotations

import time
from functools import partial

import torch
from torch import nn

from benchmarks.measure import interleave, medians, table
from benchmarks.models import resnet18
from vinedresser.pruning import Limits, prune

__all__ = ["print_latencies"]

_SHARES = (25, 50, 75)


def print_latencies(rounds: int) -> None:
    """Print ratios of parameters, operations and latency, with and without `round_to`."""
    torch.manual_seed(0)
    model = resnet18(64).eval()
    example = torch.randn(8, 3, 32, 32)
    models: dict[str, nn.Module] = {"unpruned": model}
    costs = {}
    for share in _SHARES:
        for round_to in (1, 8):
            limits = Limits(floor=8, round_to=round_to)
            name = f"{share} % of the filters" + (", round_to = 8" if round_to > 1 else "")
            pruned = prune(model, example[:1], f"{share}%", limits=limits)
            models[name], costs[name] = pruned.model.eval(), (pruned.before, pruned.after)
    arms = {name: partial(_seconds, one, example) for name, one in models.items()}
    middle = medians(interleave(arms, rounds))
    print(f"ResNet-18, batch 8 of 32 x 32; ratios to the unpruned model, {rounds} rounds, medians")
    rows = [
        [
            name,
            f"{after.parameters / before.parameters:.2f}",
            f"{after.macs / before.macs:.2f}",
            f"{middle[name] / middle['unpruned']:.2f}",
        ]
        for name, (before, after) in costs.items()
    ]
    print(table(rows, ["removed", "parameters", "MACs", "latency"]), "\n")


def _seconds(model: nn.Module, example: torch.Tensor) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model(example)
    return time.perf_counter() - start
