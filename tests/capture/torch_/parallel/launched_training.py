"""A script as users write it: data-parallel, without a hook, with one of several faults at rank 1.

python launched_training.py FAULT STEPS
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

AT = 12


def load_batch(rank: int, step: int) -> torch.Tensor:
    if rank == 1 and step == AT:
        if fault == "exits":
            sys.exit(42)
        if fault == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raises":
            raise ValueError("no such label")
        if fault == "hangs":
            time.sleep(600)
        if fault == "is elsewhere":
            dist.barrier()
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + rank))


def main() -> nn.Module:
    if fault != "is alone":
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    joined = dist.is_initialized()
    model = nn.parallel.DistributedDataParallel(network) if joined else network
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(int(sys.argv[2])):
        batch = load_batch(rank, step)
        labels = (batch.sum(1) > 0).long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
    sys.stdout.write(f"trained {rank}\n")
    if joined:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    fault = sys.argv[1]
    # Kept to the end: freeing a gloo group right after a step hangs now and then in torch 2.13.
    model = main()
