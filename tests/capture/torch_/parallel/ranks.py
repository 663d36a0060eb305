"""Starting the processes of a distributed torch training, as torchrun does but without a port."""

from __future__ import annotations

import atexit
import faulthandler
import os
import runpy
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from subprocess import CompletedProcess

import torch
import torch.distributed as dist

from tests.paths import ROOT
from tests.warm_python import TORCH

__all__ = ["ROOT", "join", "rank_environment", "run_ranks", "started_ranks"]

# Seconds within which a rank ends, less than the ranks are waited for.
_PATIENCE = 120.0

# Gloo's destructor joins its threads without releasing the GIL, and a thread of torch 2.13 that
# drops a collective takes the GIL: a group that is freed right after a step hangs now and then.
_KEPT: list[dist.ProcessGroup | None] = []


def rank_environment(rank: int, world: int = 2) -> dict[str, str]:
    """Return the environment of one rank; one thread, so that sums do not depend on the machine."""
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    return {**os.environ, **ranks, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextmanager
def started_ranks(module: str, *arguments: str | Path) -> Iterator[Future[CompletedProcess[str]]]:
    """Start a module once for each of two ranks; yield their end, and kill those left then."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-m", __name__, folder, "2", module, *map(str, arguments)]
        with TORCH.running(words, ROOT, os.environ) as ended:
            yield ended


def run_ranks(module: str, *arguments: str | Path, world: int = 2) -> list[str]:
    """Run a module once for each rank to its end, check that all ended well; return stderr.

    The process that forks the ranks is forked itself, by one that has loaded torch.
    """
    with tempfile.TemporaryDirectory() as folder:
        errors = [Path(folder, str(rank)) for rank in range(world)]
        words = ["-m", __name__, folder, str(world), module, *map(str, arguments)]
        done = TORCH.run(words, ROOT, os.environ, merged=True)
        said = [error.read_text(encoding="utf-8") for error in errors if error.exists()]
    assert done.returncode == 0, "\n".join([done.stdout, *said])
    return said


def join(folder: Path) -> int:
    """Join the process group of the ranks that share a folder; return the rank."""
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = f"file://{folder.resolve() / 'meeting'}"
    # Do not wait long for a rank that is gone.
    patience = timedelta(seconds=60)
    dist.init_process_group("gloo", meeting, patience, world_size=world, rank=rank)
    _KEPT.append(dist.group.WORLD)
    return rank


def fork_ranks(folder: Path, world: int, module: str, arguments: list[str]) -> str | None:
    """Run a module in a forked child for each rank, with a file for its stderr.

    Returns:
        What to say of ranks that failed; None if all ended well.
    """
    children = {}
    for rank in range(world):
        pid = os.fork()
        if not pid:
            os.environ |= rank_environment(rank, world)
            os.dup2(os.open(folder / str(rank), os.O_WRONLY | os.O_CREAT), 2)
            # One that hangs says where, and ends.
            faulthandler.dump_traceback_later(_PATIENCE, exit=True)
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            atexit._run_exitfuncs()
            # Not `return`: freeing what `_KEPT` holds could hang too.
            os._exit(0)
        children[pid] = rank
    ended: dict[int, int] = {}
    # The first that ends is not left a zombie while others train on.
    while len(ended) < world:
        pid, status = os.wait()
        ended[children[pid]] = os.waitstatus_to_exitcode(status)
    codes = [ended[rank] for rank in range(world)]
    # One that a signal ended has said nothing.
    return f"exit codes of the ranks: {codes}" if any(codes) else None


if __name__ == "__main__":
    sys.exit(fork_ranks(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
