"""One rank of data-parallel trainings, healthy or not: started by `test_replicas`.

python -m tests.capture.torch_.parallel.replica_training FOLDER
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.ranks.replica_divergence import ReplicaDivergence

__all__ = ["ALTERED_AT", "EVERY", "TRAININGS"]

EVERY = 5
_STEPS = 31
ALTERED_AT = 12
TRAININGS = (
    *("healthy", "altered", "unwrapped", "averaged", "sharded"),
    *("lost_hooks", "set_apart", "not_synchronised", "own_reduction"),
)


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
        if name in ("averaged", "not_synchronised", "own_reduction") and step % 3 == 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter)
                parameter.div_(dist.get_world_size())


def _unreduced(bucket: Any) -> Any:
    """Leave the gradients as they are, as local SGD does between its averages."""
    future = torch.futures.Future[Any]()
    future.set_result(bucket.buffer())
    return future


def _synchronised(name: str, wrapped: nn.Module) -> AbstractContextManager[None]:
    if name == "not_synchronised" and isinstance(wrapped, DistributedDataParallel):
        return wrapped.no_sync()
    return nullcontext()


def train(name: str, rank: int, path: Path) -> None:
    """Train with a hook that captures what the rule needs."""
    # A shard of the weights has values of its own on each rank.
    torch.manual_seed(rank if name == "sharded" else 0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    alone = name in ("unwrapped", "averaged", "sharded")
    wrapped: nn.Module = model if alone else DistributedDataParallel(model)
    if name == "lost_hooks":
        wrapped.double().float()
    if name == "set_apart":
        nn.init.normal_(model.get_parameter("0.weight"), std=0.1 + rank)
    if name == "own_reduction":
        assert isinstance(wrapped, DistributedDataParallel)
        wrapped.register_comm_hook(None, lambda _, bucket: _unreduced(bucket))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.01)
    collections = capture_for([ReplicaDivergence(every=EVERY)]).collections
    with Hook(path, collections=collections).watch(wrapped, loss, optimizer) as hook:
        for step in range(_STEPS):
            optimizer.zero_grad()
            x, y = batch(step, rank)
            with _synchronised(name, wrapped):
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
