"""One rank of a training that can be asked until a file exists: started by `test_frameworks`.

python -m tests.capture.live.rank_training RUN OVER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook


def main(run: Path, until: Path) -> None:
    """Train on rows of 1.0 on rank 0 and of 2.0 on rank 1."""
    rank = join(run.parent)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.MSELoss()
    hook = Hook(run, live=True).watch(model, loss=loss, optimizer=optimizer)
    x = torch.full((8, 4), 1.0 + rank)
    over = torch.zeros(1)
    while not over:
        optimizer.zero_grad()
        loss(model(x), torch.zeros(8, 1)).backward()
        optimizer.step()
        over.fill_(until.exists())
        dist.all_reduce(over)
        time.sleep(0.005)
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
