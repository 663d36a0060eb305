"""Trainings whose loss jumps at one step, and the factory that builds them again.

As one of two ranks: python -m tests.capture.torch_.guard.jumping_training FOLDER batch|machine
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.parallel.ranks import join
from vinedresser.capture import Hook

__all__ = ["JUMP", "STEPS", "again", "again_by_function", "train"]

JUMP, STEPS = 30, 40


def again() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Return the model, the loss and the optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=1e-3)


def again_by_function() -> tuple[nn.Module, Callable[[Any], torch.Tensor]]:
    """Return the model, and a step with the mean of the losses of the samples."""
    model, _, _ = again()

    def step(batch: Any) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(*batch.args), batch.loss_args[1])
        loss.backward()
        return loss

    return model, step


def train(run: Path, story: str, rank: int = 0, world: int = 1) -> None:
    """Train with a guard; the last rank's loss jumps.

    Args:
        run: the run.
        story: "batch": by its targets; "machine": the machine computes something else once;
            "none": not at all.
        rank: of this process.
        world: number of ranks.
    """
    inner, loss_fn, optimizer = again()
    model: nn.Module = DistributedDataParallel(inner) if world > 1 else inner
    generator = torch.Generator().manual_seed(rank)
    with Hook(run, guard="nonfinite").watch(model, loss=loss_fn, optimizer=optimizer):
        for step in range(STEPS):
            rows = torch.randn(16, 5, generator=generator)
            wanted = rows.sum(1, keepdim=True)
            jumps = step == JUMP and rank == world - 1
            if jumps and story == "batch":
                wanted = wanted + 100.0
            optimizer.zero_grad()
            found = model(rows)
            if jumps and story == "machine":
                with torch.no_grad():
                    found += 100.0
            loss_fn(found, wanted).backward()
            optimizer.step()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    train(folder / "run", sys.argv[2], join(folder), 2)
    dist.destroy_process_group()
