"""One rank of a training whose ranks wait for one another in each step, and rank 0 saves.

python rank_training.py STEPS [--fail STEP] [--resume CHECKPOINT]
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

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


def main() -> None:
    """Train; rank 1 fails at a step unless it begins from a checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--fail", type=int)
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    begun = int(given.resume.read_text()) if given.resume else 0
    with Hook() as hook:
        peers = connections(rank, world)
        for step in range(begun, given.steps):
            if step == given.fail and rank == 1 and not begun:
                raise ValueError("a damaged record")
            # Rank 0 hears from all before it answers.
            for receives in (rank == 0, rank != 0):
                for peer in peers:
                    if not receives:
                        peer.sendall(b"x")
                    elif not peer.recv(1):
                        raise ConnectionError("Connection closed by peer")
            time.sleep(0.004)
            hook.step(loss=1 / (1 + step))
            if rank == 0 and given.fail and (step + 1) % 20 == 0:
                save(Path(hook.path, "checkpoints"), step + 1 - begun, step + 1)


def save(folder: Path, own: int, done: int) -> None:
    """Save a checkpoint, which is named after the steps of this run."""
    folder.mkdir(exist_ok=True)
    part = folder / "part"
    part.write_text(str(done), encoding="utf-8")
    part.rename(folder / f"step-{own}.txt")


if __name__ == "__main__":
    main()
