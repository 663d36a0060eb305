"""Cost of the guard and of snapshots: ``python -m benchmarks.guard --model mlp cnn xgboost``.

The arms train in one process, step block by step block in turn. A ratio is the median over the
rounds of a block's CPU time (one thread) to that of the plain arm in the same round; "plain again"
shows the random error of such a ratio. All arms but the plain ones have a hook that captures
nothing; "guard" also looks at the gradients before each update, and keeps buffers and random states
before each forward. A training that goes wrong is not timed: its snapshot is, with its size.
TensorFlow has its own threads: for Keras, the CPU time is that of the process. A step of XGBoost is
a round with a custom objective.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.measure import interleave, table
from benchmarks.models import MODELS, Task
from vinedresser.capture import Hook, SaveConfig
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import list_snapshots

__all__ = ["main"]

_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}
_ARMS = ("plain", "plain again", "hook", "guard")
# Maximum ratio of the guard's arm to the plain one.
_BUDGETS = {"mlp": 1.05, "keras-mlp": 1.05}
_BUDGET = 1.03
_KERAS = ("keras-mlp", "keras-cnn", "keras-cnn-jit")
_XGBOOST = "xgboost"


def _cnn() -> nn.Module:
    """Return a convolutional network with batch normalization and dropout, about 10 ms a step."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


_CNN = Task(_cnn, (32, 1, 28, 28), 20, "2 convolutions, batch 32 of 28 x 28")
_TASKS = {"mlp": MODELS["mlp"], "resnet": MODELS["resnet"], "cnn": _CNN}


class _Training:
    """A training of one arm, on one batch."""

    def __init__(self, task: Task, arm: str, folder: Path) -> None:
        torch.manual_seed(0)
        self.model = task.make()
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.inputs = torch.randn(task.shape)
        self.labels = torch.randint(0, 10, task.shape[:1])
        self.hook: Hook | None = None
        if not arm.startswith("plain"):
            guard = "nonfinite" if arm == "guard" else "off"
            self.hook = Hook(folder, collections=_NEVER, guard=guard)
            self.hook.watch(self.model, self.loss, self.optimizer)

    def step(self, scale: float = 1.0) -> None:
        self.optimizer.zero_grad()
        (self.loss(self.model(self.inputs), self.labels) * scale).backward()
        self.optimizer.step()

    def block(self, steps: int) -> float:
        """Take some steps; return the CPU seconds of this thread for each."""
        began = time.thread_time()
        for _ in range(steps):
            self.step()
        return (time.thread_time() - began) / steps

    def break_(self) -> None:
        """Take a step whose gradients are not finite."""
        self.step(float("nan"))


def _make(name: str, arm: str, folder: Path, steps: int) -> Any:
    """Return the training of an arm."""
    if name == _XGBOOST:
        from benchmarks.guard.xgboost_training import XGBoostTraining

        return XGBoostTraining(arm, folder)
    if name not in _KERAS:
        return _Training(_TASKS[name], arm, folder)
    from benchmarks.guard.keras_training import KerasTraining

    return KerasTraining(name, arm, folder, steps)


def _snapshot(trainings: Mapping[str, Any], folder: Path) -> tuple[int, float]:
    """Break a training with the guard, and one with a hook only, whose time is deducted.

    Args:
        trainings: the trainings by arm.
        folder: run of the arm "guard".

    Returns:
        The size of the snapshot in bytes, and the seconds it took.
    """
    seconds = {}
    for arm in ("hook", "guard"):
        began = time.perf_counter()
        trainings[arm].break_()
        seconds[arm] = time.perf_counter() - began
    (record,) = list_snapshots(LocalStorage(folder), [])
    return record.bytes, seconds["guard"] - seconds["hook"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", choices=[*_TASKS, *_KERAS, _XGBOOST], nargs="*", default=["mlp", "cnn"]
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20, help="steps of a block")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, sizes = [], []
    for name in given.model:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        trainings = {arm: _make(name, arm, folder / arm, given.steps) for arm in _ARMS}
        seconds = interleave(
            {arm: lambda one=one: one.block(given.steps) for arm, one in trainings.items()},  # type: ignore[misc]
            given.rounds,
        )
        for arm in _ARMS:
            pairs = zip(seconds[arm], seconds["plain"], strict=True)
            ratio = median(one / plain for one, plain in pairs)
            budget = f"{_BUDGETS.get(name, _BUDGET):.2f}" if arm == "guard" else ""
            rows.append((name, arm, f"{median(seconds[arm]) * 1e3:.2f}", f"{ratio:.3f}", budget))
        size, took = _snapshot(trainings, folder / "guard")
        sizes.append((name, f"{size / 2**20:.1f}", f"{took * 1e3:.0f}"))
        for one in trainings.values():
            if one.hook is not None:
                one.hook.close()
        shutil.rmtree(folder)
    print(table(rows, ("model", "arm", "ms per step", "ratio", "budget")))
    print()
    print(table(sizes, ("model", "MiB of a snapshot", "ms to take it")))


if __name__ == "__main__":
    main()
