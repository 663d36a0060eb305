"""The environment by which the ranks of a job find each other."""

from __future__ import annotations

import json
import socket

from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS, visible_gpus
from vinedresser.processes import Environment
from vinedresser.store.records import LaunchRecord

__all__ = ["RankEnvironments"]

_LOOPBACK = "127.0.0.1"
_THREADS = "OMP_NUM_THREADS"
_TENSORFLOW = "TF_CONFIG"


class RankEnvironments:
    """The environments of the ranks of a job, all on this machine.

    ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``LOCAL_WORLD_SIZE``, ``MASTER_ADDR`` and
    ``MASTER_PORT`` are those of torchrun
    (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables), ``TF_CONFIG`` is
    that of TensorFlow's ``TFConfigClusterResolver``, of workers only. The cores are shared out by
    ``OMP_NUM_THREADS`` unless it is set; the GPUs by ``CUDA_VISIBLE_DEVICES`` if each rank is to
    have its own.

    The ports are reserved until `close`: no other program gets one by chance while the ranks import
    their framework, and a server that sets SO_REUSEADDR, as torch's and TensorFlow's do, can listen
    on it.

    Args:
        launch: the number of ranks and of the GPUs of each.
        shared: the environment that all ranks share.

    Raises:
        OSError: no port is free.
    """

    def __init__(self, launch: LaunchRecord, shared: Environment) -> None:
        self._launch = launch
        self._shared = shared
        self._reserved = [_reserved_port() for _ in range(launch.ranks)]
        ports = [one.getsockname()[1] for one in self._reserved]
        # The first worker of TensorFlow listens where torch's rank 0 would.
        self._port = ports[0]
        self._workers = [f"{_LOOPBACK}:{port}" for port in ports]

    def of(self, rank: int) -> Environment:
        """Return the complete environment of a rank."""
        shared, ranks = self._shared, self._launch.ranks
        task = {"cluster": {"worker": self._workers}, "task": {"type": "worker", "index": rank}}
        return {
            _THREADS: str(max(cores() // ranks, 1)),
            _TENSORFLOW: json.dumps(task),
            **shared,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": _LOOPBACK,
            "MASTER_PORT": str(self._port),
            **self._gpus(rank),
        }

    def close(self) -> None:
        """Give the ports back."""
        for one in self._reserved:
            one.close()

    def _gpus(self, rank: int) -> dict[str, str]:
        """Return the rank's share of the GPUs that the launcher has leased for the run."""
        each = self._launch.gpus_per_rank
        names = visible_gpus()[rank * each : (rank + 1) * each]
        return {VISIBLE_GPUS: ",".join(names)} if each else {}


def _reserved_port() -> socket.socket:
    """Return a socket that is bound to a free port, and does not listen."""
    held = socket.socket()
    held.bind((_LOOPBACK, 0))
    # Afterwards, so that no other reserved port is chosen.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
