"""The environment by which the ranks of a job find each other."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS, visible_gpus
from vinedresser.processes import Environment
from vinedresser.store.records import LaunchRecord

__all__ = ["LOOPBACK", "Part", "ReservedPorts", "rank_environment"]

LOOPBACK = "127.0.0.1"
_THREADS = "OMP_NUM_THREADS"
_TENSORFLOW = "TF_CONFIG"


class ReservedPorts:
    """Free ports of this machine, one for each rank.

    They are reserved until `close`: no other program gets one by chance while the ranks import
    their framework, and a server that sets SO_REUSEADDR, as torch's and TensorFlow's do, can listen
    on it.

    Args:
        count: number of ports.
        address: address of this machine at which the other ranks reach them.

    Raises:
        OSError: no port is free, or the address is not that of this machine.
    """

    def __init__(self, count: int, address: str = LOOPBACK) -> None:
        self._reserved = [_reserved_port(address) for _ in range(count)]
        self.numbers: list[int] = [one.getsockname()[1] for one in self._reserved]

    def close(self) -> None:
        """Give the ports back."""
        for one in self._reserved:
            one.close()


@dataclass(frozen=True)
class Part:
    """The ranks of a job that one process starts.

    Attributes:
        ranks: their numbers.
        workers: address and port of each rank of the job, as ``127.0.0.1:4711``.
        local_rank: number of the first among the ranks of its machine.
        local_size: number of ranks of its machine.
    """

    ranks: range
    workers: Sequence[str]
    local_rank: int
    local_size: int


def rank_environment(
    launch: LaunchRecord, shared: Environment, part: Part, rank: int
) -> dict[str, str]:
    """Return the complete environment of a rank.

    ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``LOCAL_WORLD_SIZE``, ``MASTER_ADDR`` and
    ``MASTER_PORT`` are those of torchrun
    (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables), ``TF_CONFIG`` is
    that of TensorFlow's ``TFConfigClusterResolver``, of workers only. The cores are shared out by
    ``OMP_NUM_THREADS`` unless it is set; the GPUs by ``CUDA_VISIBLE_DEVICES`` if each rank is to
    have its own.

    Args:
        launch: the number of ranks and of the GPUs of each.
        part: the ranks of this process, and where all of them meet.
        rank: number of one of them.
    """
    local = part.local_rank + rank - part.ranks.start
    task = {"cluster": {"worker": part.workers}, "task": {"type": "worker", "index": rank}}
    # The first worker of TensorFlow listens where torch's rank 0 would.
    master, _, port = part.workers[0].rpartition(":")
    each = launch.gpus_per_rank
    own = visible_gpus()[local * each : (local + 1) * each]
    return {
        _THREADS: str(max(cores() // part.local_size, 1)),
        _TENSORFLOW: json.dumps(task),
        **shared,
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(launch.ranks),
        "LOCAL_WORLD_SIZE": str(part.local_size),
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        **({VISIBLE_GPUS: ",".join(own)} if each else {}),
    }


def _reserved_port(address: str) -> socket.socket:
    """Return a socket that is bound to a free port, and does not listen."""
    held = socket.socket()
    held.bind((address, 0))
    # Afterwards, so that no other reserved port is chosen.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
