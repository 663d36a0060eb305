"""Starting the processes of a distributed torch training, as torchrun does but without a port."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.paths import ROOT

__all__ = ["ROOT", "join", "rank_environment", "run_ranks", "start_ranks"]


def rank_environment(rank: int, world: int = 2) -> dict[str, str]:
    """Return the environment of one rank; one thread, so that sums do not depend on the machine."""
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    return {**os.environ, **ranks, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextmanager
def start_ranks(
    module: str, *arguments: str | Path, world: int = 2
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a test module once per rank; kill the remaining processes at the end."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    started = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=rank_environment(rank, world),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def run_ranks(
    module: str, *arguments: str | Path, world: int = 2, timeout: float = 150
) -> list[str]:
    """Run a module once for each rank to its end, check that all ended well; return stderr."""
    with start_ranks(module, *arguments, world=world) as started:
        said = [process.communicate(timeout=timeout) for process in started]
        for process, (_, errors) in zip(started, said, strict=True):
            assert process.returncode == 0, errors
    return [errors for _, errors in said]


def join(folder: Path) -> int:
    """Join the process group of the ranks that share a folder; return the rank."""
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = f"file://{folder.resolve() / 'meeting'}"
    # Do not wait long for a rank that is gone.
    patience = timedelta(seconds=60)
    dist.init_process_group("gloo", meeting, patience, world_size=world, rank=rank)
    return rank
