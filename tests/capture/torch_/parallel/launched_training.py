"""A script as users write it: data-parallel, without a hook, with one of several faults at rank 1.

python launched_training.py FAULT STEPS
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

AT = 12
# Ranks that train without a process group: by themselves, or averaging over a socket of their own.
APART = ("is alone", "averages")


def connect(rank: int) -> socket.socket:
    """Return the connection between two ranks."""
    place = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if rank == 0:
        return socket.create_server(place).accept()[0]
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(place)
        time.sleep(0.05)


def average(connection: socket.socket, network: nn.Module) -> None:
    """Average the first bias of both ranks."""
    bias = next(one for one in network.parameters() if one.ndim == 1)
    connection.sendall(bias.detach().numpy().tobytes())
    other = connection.recv(4 * len(bias), socket.MSG_WAITALL)
    with torch.no_grad():
        bias.add_(torch.frombuffer(bytearray(other), dtype=torch.float32)).div_(2)


def await_training(rank: int) -> None:
    """Wait until the other rank's hook has said that it trains, too; rank 1's that it is alone."""
    run = Path(os.environ["VINEDRESSER_RUN"])
    while fault == "is alone" and rank == 0 and not (run / "findings/trainer-ranks.jsonl").exists():
        time.sleep(0.05)
    beat = run / f"heartbeat/{1 - rank}.json"
    while not beat.exists() or json.loads(beat.read_bytes())["last_step"] < 5:
        time.sleep(0.05)


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
    rank = int(os.environ["RANK"])
    if fault not in APART:
        dist.init_process_group("gloo")
    connection = connect(rank) if fault == "averages" else None
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
        if connection is not None:
            average(connection, network)
        if fault in APART and step == 7:
            await_training(rank)
    sys.stdout.write(f"trained {rank}\n")
    if joined:
        dist.destroy_process_group()
    return model


if __name__ == "__main__":
    fault = sys.argv[1]
    # Kept to the end: freeing a gloo group right after a step hangs now and then in torch 2.13.
    model = main()
