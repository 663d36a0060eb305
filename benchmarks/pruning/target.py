"""How close a target by latency comes, measured again."""

from __future__ import annotations

import torch

from benchmarks.measure import table
from benchmarks.models import resnet18
from vinedresser.pruning import Limits, prune
from vinedresser.pruning.latency import measured_latency

__all__ = ["print_target"]

_TARGET = 0.5


def print_target() -> None:
    """Print the latency that a search found, and its latency when measured again, for longer."""
    torch.manual_seed(0)
    model = resnet18(64)
    example = torch.randn(8, 3, 32, 32)
    rows = []
    for round_to in (1, 8):
        limits = Limits(floor=8, round_to=round_to)
        pruned = prune(model, example, latency=_TARGET, limits=limits)
        assert pruned.latency is not None
        before, after = measured_latency([model, pruned.model], example, budget=20)
        rows.append(
            [
                round_to,
                pruned.plans[0].count,
                f"{pruned.after.macs / pruned.before.macs:.3f}",
                f"{pruned.latency.share:.3f}",
                f"{after / before:.3f}",
                f"<= {1.05 * _TARGET:.3f}",
                pruned.latency.measurements,
            ]
        )
    print(f"ResNet-18, batch 8 of 32 x 32: latency = {_TARGET} of the unpruned model's")
    headers = ["round_to", "filters removed", "MACs", "latency found", "measured again", "budget"]
    print(table(rows, [*headers, "measurements"]), "\n")
