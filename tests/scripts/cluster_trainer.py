"""A training that saves a checkpoint when it is stopped and can resume from one."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from vinedresser.capture import Hook

_STEPS = 5


def main() -> None:
    """Train: the accuracy depends on ``--x`` and the epoch alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--hold", type=Path, help="repeat the first epoch while this file exists")
    given = parser.parse_args()
    first = json.loads(given.resume.read_text()) if given.resume else 0
    draw = np.random.default_rng(first)
    with Hook() as hook:
        epoch = first

        def save(folder: Path, steps: int) -> None:
            (folder / f"step-{steps}.json").write_text(json.dumps(epoch))

        hook.on_stop(save)
        for epoch in range(first, given.epochs):
            for _ in range(_STEPS):
                labels = draw.integers(0, 2, 8)
                hook.step(inputs=draw.normal(size=(8, 2)), labels=labels, loss=1 / (1 + epoch))
            while given.hold and given.hold.exists():
                hook.step(loss=1 / (1 + epoch))
                time.sleep(0.05)
            with hook.mode("eval"):
                hook.metric("accuracy", given.x * (epoch + 1))
            time.sleep(given.pause)


if __name__ == "__main__":
    main()
