"""A training of a population, as quick as can be: its accuracy is the sum of x over all epochs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.capture import Hook


def main() -> None:
    """Train up to an epoch, from a checkpoint if there is one, and save another at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--from", dest="begin", type=Path)
    parser.add_argument("--broken", default="")
    parser.add_argument("--pause", type=float, default=0.0)
    given = parser.parse_args()
    run = Path(os.environ["VINEDRESSER_RUN"]).name
    state: dict[str, Any] = {"epoch": 0, "score": 0.0, "runs": []}
    if given.begin is not None:
        state = json.loads(given.begin.read_text(encoding="utf-8"))
    state["runs"] += [run]
    if run == given.broken:
        sys.exit("it crashes")
    draw = np.random.default_rng(0)
    with Hook() as hook:
        steps = 0
        while state["epoch"] < given.epochs:
            for _ in range(3):
                labels, inputs = draw.integers(0, 2, 8), draw.normal(size=(8, 2))
                hook.step(inputs=inputs, labels=labels, loss=1.0 / (1.0 + steps))
                steps += 1
            state["epoch"] += 1
            state["score"] += given.x
            with hook.mode("eval"):
                hook.metric("accuracy", state["score"])
            time.sleep(given.pause)
        folder = Path(hook.path) / "checkpoints"
        folder.mkdir(exist_ok=True)
        (folder / "next").write_text(json.dumps(state), encoding="utf-8")
        (folder / "next").rename(folder / f"step-{steps}.json")


if __name__ == "__main__":
    main()
