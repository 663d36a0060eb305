"""One rank of trainings whose captures are over budget on rank 0: started by `test_pace`.

python -m tests.capture.torch_.parallel.paced_training FOLDER together|apart
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook, SaveConfig

__all__ = ["DEATH", "STEPS"]

STEPS = 400
# Step at which rank 1 dies, of ranks that train apart.
DEATH = 120


def train(folder: Path, rank: int, way: str, *, hooked: bool) -> dict[str, Tensor]:
    """Train, and return the weights; rank 1 of ranks that train apart ends early."""
    torch.manual_seed(0)
    inner = nn.Linear(6, 3)
    model: nn.Module = DistributedDataParallel(inner) if way == "together" else inner
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(inner.parameters(), lr=0.01)
    hook = None
    if hooked:
        rare = SaveConfig(every=1, reductions=("l2",), elastic=True)
        hook = Hook(folder / way, collections={"weights": rare}, budget=1e-6)
        # Of rank 0 only, each callback takes ten milliseconds.
        hook._session.shield.meter.clock = itertools.count(step=0.01 * (rank == 0)).__next__
        hook.watch(model, loss, optimizer)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        if way == "apart" and rank == 1 and step == DEATH:
            assert hook is not None
            hook.flush()
            os._exit(0)
        optimizer.zero_grad()
        x, y = torch.randn(8, 6, generator=generator), torch.arange(8) % 3
        loss(model(x), y).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == [], hook.problems
    return {name: value.clone() for name, value in inner.state_dict().items()}


def main() -> None:
    """Train with a hook and, together, without."""
    folder, way = Path(sys.argv[1]), sys.argv[2]
    rank = int(os.environ["RANK"])
    if way == "apart":
        train(folder, rank, way, hooked=True)
        return
    join(folder)
    for hooked in (False, True):
        save_file(train(folder, rank, way, hooked=hooked), folder / f"{hooked}-{rank}.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
