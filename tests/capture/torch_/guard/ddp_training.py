"""One rank of a data-parallel training whose gradient stops being finite on one of them.

python -m tests.capture.torch_.guard.ddp_training FOLDER distances|half|forward|backward [sharded]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.capture.torch_.guard.trainings import batch
from tests.capture.torch_.parallel.ranks import join
from tests.replay.stories import BAD_ROW as HALF_ROW
from tests.replay.stories import BAD_STEP as HALF_STEP
from tests.replay.stories import distances, half
from vinedresser.capture import Hook


def half_batch(step: int) -> tuple[Tensor, Tensor]:
    """Return rows and targets of a step; one target of the bad step is too large for half."""
    generator = torch.Generator().manual_seed(step)
    rows = torch.randn(64, 5, generator=generator)
    wanted = torch.randn(64, 1, generator=generator)
    if step == HALF_STEP:
        wanted[HALF_ROW] = 300.0
    return rows, wanted


def main(folder: Path, story: str, *, sharded: bool) -> None:
    """Train; only the batches of rank 1 have a bad sample.

    Args:
        folder: holds the run.
        story: "distances" or "half"; "forward" or "backward": as "half", but without the bad
            sample, and the machine of rank 1 computes NaN once, there.
        sharded: whether each rank has a part of each parameter, as with FSDP2.
    """
    rank = join(folder)
    torch.manual_seed(0)
    model, loss_fn = distances() if story == "distances" else half()[:2]
    batches = batch if story == "distances" else half_batch
    parallel: nn.Module = model
    if sharded:
        # In place.
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    else:
        parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=1e-3)
    hook = Hook(folder / "run", guard="nonfinite")
    hook.watch(parallel, loss=loss_fn, optimizer=optimizer)
    for step in range(8):
        inputs, targets = batches(step)
        if rank == 0 or story in ("forward", "backward"):
            targets = torch.ones_like(targets)
        optimizer.zero_grad()
        found = parallel(inputs)
        if rank == 1 and step == HALF_STEP and story == "forward":
            with torch.no_grad():
                found[0] = torch.nan
        if rank == 1 and step == HALF_STEP and story == "backward":
            found.register_hook(lambda gradient: gradient * torch.nan)
        loss_fn(found, targets).backward()
        optimizer.step()
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sharded="sharded" in sys.argv[3:])
