"""One rank of a trial: in each step all ranks wait for each other, as in a collective operation."""

from __future__ import annotations

import argparse
import io
import os
import signal
import socket
import time
from pathlib import Path

import numpy as np

from vinedresser.capture import Hook

STEPS = 20


def main() -> None:
    """Train to the end, from a checkpoint if there is one; rank 1 fails in the first run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float)
    parser.add_argument("--hold", type=Path)
    parser.add_argument("--from", dest="origin", type=Path)
    # Each rank saves its own part, and rank 1 is killed while it writes the third one.
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    rank = int(os.environ["RANK"])
    if given.parts and given.origin:
        np.load(f"{given.origin}_rank_{rank}.npz")
    other = meet(rank) if os.environ["WORLD_SIZE"] == "2" else None
    done = int(given.origin.stem.partition("-")[2]) if given.origin else 0
    with Hook() as hook:
        for step in range(done, STEPS):
            if other is not None:
                other.send(b"x")
                if not other.recv(1):
                    raise ConnectionError("Connection closed by peer")
            while step == 7 and given.hold.exists():
                time.sleep(0.01)
            if step == 12 and rank == 1 and given.origin is None and not given.parts:
                raise ValueError("bad luck")
            hook.step(loss=1.0 / (1 + step))
            steps = step + 1 - done
            folder = Path(hook.path, "checkpoints")
            if steps % 5 == 0 and (rank == 0 or given.parts):
                folder.mkdir(exist_ok=True)
                name = f"step-{steps}_rank_{rank}.npz" if given.parts else f"step-{steps}.pt"
                save(folder / name, killed=steps == 15 and rank == 1)
        with hook.mode("eval"):
            hook.metric("accuracy", given.x)


def save(path: Path, *, killed: bool) -> None:
    """Save a checkpoint, or be killed in the middle of it."""
    content = io.BytesIO()
    np.savez(content, weights=np.arange(1_000.0))
    if killed:
        path.write_bytes(content.getvalue()[:4_000])
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_bytes(content.getvalue())


def meet(rank: int) -> socket.socket:
    """Return a connection with the other rank."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.01)


if __name__ == "__main__":
    main()
