"""One rank of a data-parallel training whose gradient stops being finite on one of them.

python -m tests.capture.torch_.guard.ddp_training FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.guard.trainings import DistanceLoss, Distances, batch
from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook


def main(folder: Path) -> None:
    """Train; only the batches of rank 1 have a bad sample."""
    rank = join(folder)
    torch.manual_seed(0)
    model, loss_fn = DistributedDataParallel(Distances()), DistanceLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = Hook(folder / "run", guard="nonfinite")
    hook.watch(model, loss=loss_fn, optimizer=optimizer)
    for step in range(8):
        images, weights = batch(step)
        if rank == 0:
            weights = torch.ones_like(weights)
        optimizer.zero_grad()
        loss_fn(model(images), weights).backward()
        optimizer.step()
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
