"""One rank of data-parallel trainings, healthy or not: started by `test_replicas`.

python -m tests.capture.torch_.parallel.replica_training FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.system.replica_divergence import ReplicaDivergence

__all__ = ["ALTERED_AT", "EVERY", "TRAININGS"]

EVERY = 5
_STEPS = 31
ALTERED_AT = 12
TRAININGS = ("healthy", "altered", "unwrapped", "averaged", "sharded")


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return the inputs, [8, 6], and labels, [8], of one rank."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    labels = torch.randint(0, 3, (8,), generator=generator)
    return torch.randn(8, 6, generator=generator), labels


def after(name: str, step: int, rank: int, model: nn.Sequential) -> None:
    """Do to the weights what a training does to them after a step."""
    last = model.get_parameter("3.weight")
    with torch.no_grad():
        if name == "altered" and step == ALTERED_AT and rank == 1:
            # The last bit of one number.
            last[0, 0] = last[0, 0].nextafter(torch.tensor(9.0))
        if name == "averaged" and step % 3 == 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter)
                parameter.div_(dist.get_world_size())


def train(name: str, rank: int, path: Path) -> None:
    """Train with a hook that captures what the rule needs."""
    # A shard of the weights has values of its own on each rank.
    torch.manual_seed(rank if name == "sharded" else 0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    alone = name in ("unwrapped", "averaged", "sharded")
    wrapped: nn.Module = model if alone else DistributedDataParallel(model)
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.01)
    collections = capture_for([ReplicaDivergence(every=EVERY)]).collections
    with Hook(path, collections=collections).watch(wrapped, loss, optimizer) as hook:
        for step in range(_STEPS):
            optimizer.zero_grad()
            x, y = batch(step, rank)
            loss(wrapped(x), y).backward()
            optimizer.step()
            after(name, step, rank, model)
    assert hook.problems == [], hook.problems


def main() -> None:
    """Train all trainings."""
    folder = Path(sys.argv[1])
    rank = join(folder)
    for name in TRAININGS:
        train(name, rank, folder / name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
