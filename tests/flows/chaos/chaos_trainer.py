"""A training that saves a checkpoint after each epoch and goes on from one; all of it is known.

Of several ranks, the first one saves.

Its loss at each step, and its accuracy at each epoch, depend on nothing but their number.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

from vinedresser.capture import Hook

__all__ = ["EPOCH", "accuracy"]

# Steps of an epoch.
EPOCH = 5


def accuracy(x: float, epoch: int) -> float:
    """Return the accuracy after so many epochs."""
    return x * epoch / 100


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--hold", type=Path, help="the last epoch waits for this file")
    given = parser.parse_args()
    # As SLURM warns all processes of a job.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    first = json.loads(given.resume.read_text())["epochs"] if given.resume else 0
    # On an object store it is the place from which all is uploaded.
    folder = Path(os.environ["VINEDRESSER_RUN"], "checkpoints")
    with Hook() as hook:
        for epoch in range(first, given.epochs):
            while given.hold and epoch + 1 == given.epochs and not given.hold.exists():
                time.sleep(0.02)
            for step in range(EPOCH):
                hook.step(loss=1 / (1 + epoch * EPOCH + step))
                time.sleep(given.pause / EPOCH)
            with hook.mode("eval"):
                hook.metric("accuracy", accuracy(given.x, epoch + 1))
            if os.environ.get("RANK", "0") != "0":
                continue
            folder.mkdir(exist_ok=True)
            saved = folder / f"step-{(epoch + 1 - first) * EPOCH}.json"
            saved.with_name(f".tmp-{saved.name}").write_text(json.dumps({"epochs": epoch + 1}))
            saved.with_name(f".tmp-{saved.name}").rename(saved)


if __name__ == "__main__":
    main()
