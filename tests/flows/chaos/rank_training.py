"""One rank of a training whose ranks wait for one another in each step: `test_rank_jobs` runs it.

python rank_training.py STEPS
"""

from __future__ import annotations

import os
import socket
import sys
import time

from vinedresser.capture import Hook


def connections(rank: int, world: int) -> list[socket.socket]:
    """Connect rank 0 with each other rank, and return this one's connections."""
    address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
    if rank == 0:
        server = socket.create_server(address)
        return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            time.sleep(0.01)


def main(steps: int) -> None:
    """Train."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with Hook() as hook:
        peers = connections(rank, world)
        for step in range(steps):
            # Rank 0 hears from all before it answers.
            for receives in (rank == 0, rank != 0):
                for peer in peers:
                    if not receives:
                        peer.sendall(b"x")
                    elif not peer.recv(1):
                        raise ConnectionError("Connection closed by peer")
            time.sleep(0.004)
            hook.step(loss=1 / (1 + step))


if __name__ == "__main__":
    main(int(sys.argv[1]))
