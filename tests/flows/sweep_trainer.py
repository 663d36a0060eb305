"""A training of a sweep, as quick as can be: its accuracy depends on its parameters alone."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from vinedresser.capture import Hook


def main() -> None:
    """Train: ``--kind`` says what becomes of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, required=True)
    parser.add_argument("--kind", default="good")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--hold", type=Path, default=Path("no such file"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.kind == "crash":
        sys.exit(f"this one always crashes, with x = {given.x}")
    draw = np.random.default_rng(given.seed)
    with Hook() as hook:
        for epoch in range(given.epochs):
            for _ in range(5):
                labels = draw.integers(0, 2, 8)
                inputs, loss = draw.normal(size=(8, 2)), 1 / (1 + epoch)
                hook.step(inputs=inputs, labels=labels, loss=loss if given.kind != "odd" else 9.0)
            if given.kind == "killed-once" and _first(hook):
                os.kill(os.getpid(), signal.SIGKILL)
            accuracy = math.nan if given.kind == "nan" and epoch else given.x * (epoch + 1) / 4
            with hook.mode("eval"):
                hook.metric("accuracy", accuracy)
            time.sleep(given.pause)
            while given.hold.exists():
                time.sleep(0.02)
            if math.isnan(accuracy):
                _await_stop(hook)


def _await_stop(hook: Hook) -> None:
    """Train until the sweep stops the trial, which the hook does between two steps."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        hook.step(loss=1.0)
        time.sleep(0.02)


def _first(hook: Hook) -> bool:
    """Say whether this is the first run of its trial."""
    return Path(hook.path).name.count("-") == 1


if __name__ == "__main__":
    main()
