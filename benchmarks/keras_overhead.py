"""Overhead of a hook in a Keras training on TensorFlow: ``python -m benchmarks.keras_overhead``.

A CNN is trained with ``fit``, as a graph, on the same batch repeatedly. All arms train in one
process, block by block in turn, so that load on the machine affects all arms equally; each arm has
its own model and run. A ratio is the median over the rounds of a block's time to the plain arm's in
the same round; "plain again" shows the random error of such a ratio. A save every 100 steps occurs
in only some of the blocks; blocks with and without one are weighted by frequency. The CPU ratio
covers the whole process, including the writer thread.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.measure import interleave, table
from vinedresser.capture import Hook, SaveConfig

__all__ = ["main"]

_KINDS = ("weights", "biases", "gradients", "outputs")
_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}
_FIVE = ("min", "max", "mean", "l2", "std")
_BATCH = 32

Collections = dict[str, SaveConfig]


def _all(every: int, reductions: tuple[str, ...] = ()) -> Collections:
    return dict.fromkeys(_KINDS, SaveConfig(every=every, reductions=reductions))


def _model_statistics(every: int) -> Collections:
    save = SaveConfig(every=every, reductions=_FIVE)
    return {"weights": save, "gradients": save}


# By arm: captured collections (None for no hook), number of steps between expensive steps, and the
# budget as a ratio to plain (None if there is none).
ARMS: dict[str, tuple[Collections | None, int, float | None]] = {
    "plain": (None, 1, None),
    "plain again": (None, 1, None),
    "hook idle": (_NEVER, 1, 1.01),
    "losses every step": ({}, 1, 1.01),
    "statistics of weights, gradients every 20": (_model_statistics(20), 20, 1.03),
    "statistics of weights, gradients every step": (_model_statistics(1), 1, None),
    "all tensors every 100": (_all(100), 100, 1.01),
    "all tensors every 10": (_all(10), 10, 1.06),
    "all tensors every step": (_all(1), 1, 1.6),
    "five reductions of all every step": (_all(1, _FIVE), 1, 1.45),
}


def cnn() -> Any:
    """Return a CNN for 32 x 32 images, with normalisation and dropout."""
    blocks = [
        layer
        for width in (16, 32, 64)
        for layer in (
            layers.Conv2D(width, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
        )
    ]
    head = [layers.Flatten(), layers.Dropout(0.3), layers.Dense(128, "relu"), layers.Dense(10)]
    return keras.Sequential([keras.Input((32, 32, 3)), *blocks, *head])


class Training:
    """One arm: a model that is repeatedly fitted to one batch.

    Args:
        collections: collections that the hook captures; None for no hook.
        steps: steps per block.
        period: number of steps between expensive steps.
        folder: folder of the run.

    Attributes:
        hook: the hook, or None.
        blocks: wall and CPU seconds per step of each block so far, and whether it contained an
            expensive step.
    """

    def __init__(
        self, collections: Collections | None, steps: int, period: int, folder: Path
    ) -> None:
        keras.utils.set_random_seed(0)
        self.model = cnn()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(_BATCH, 32, 32, 3)).astype("float32")
        batch = (x, rng.integers(0, 10, _BATCH))
        self.data = tf.data.Dataset.from_tensors(batch).repeat(steps)
        self.hook: Hook | None = None
        if collections is not None:
            self.hook = Hook(folder, collections=collections).watch(self.model)
        self.segments = folder / "segments" / "0"
        self.steps = steps
        self.period = max(period // steps, 1)
        self.blocks: list[tuple[float, float, bool]] = []

    def run(self) -> float:
        """Time one block; return its seconds per step."""
        costly = len(self.blocks) % self.period == 0
        start, cpu = time.perf_counter(), time.process_time()
        self.model.fit(self.data, verbose=0, shuffle=False)
        taken = (time.perf_counter() - start) / self.steps
        self.blocks.append((taken, (time.process_time() - cpu) / self.steps, costly))
        if self.hook is not None:
            # Keep the writer out of the next arm's time, and free the disk.
            self.hook.flush()
            shutil.rmtree(self.segments, ignore_errors=True)
        return taken

    def ratio(self, plain: Training | None = None, *, cpu: bool = False) -> float:
        """Return median seconds per step over a period, or their ratio to another arm's."""
        kinds: dict[bool, list[float]] = {True: [], False: []}
        # All tracing happens in the first period.
        for turn, block in list(enumerate(self.blocks))[1:]:
            base = 1.0 if plain is None else plain.blocks[turn][cpu]
            kinds[block[2]].append(block[cpu] / base)
        rare = median(kinds[True] or kinds[False])
        usual = median(kinds[False] or kinds[True])
        return (rare + (self.period - 1) * usual) / self.period


def _report(arms: dict[str, Training]) -> str:
    """Return the table of all arms."""
    rows = []
    for name, arm in arms.items():
        budget = ARMS[name][2]
        rows.append(
            (
                name,
                f"{arm.ratio() * 1e3:.2f}",
                f"{arm.ratio(arms['plain']):.3f}",
                f"{arm.ratio(arms['plain'], cpu=True):.3f}",
                "" if budget is None else f"<= {budget}",
            )
        )
    return table(rows, ("arm", "ms per step", "ratio", "CPU ratio", "budget"))


def main() -> None:
    """Run the arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="timed blocks per arm")
    parser.add_argument("--steps", type=int, default=20, help="steps per block")
    parser.add_argument("--threads", type=int, default=1, help="threads per operation")
    parser.add_argument(
        "--folder",
        type=Path,
        help="folder of the runs; use one in memory such as /dev/shm to measure the hook alone",
    )
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    folder = Path(tempfile.mkdtemp(prefix="keras-overhead-", dir=options.folder))
    try:
        arms = {
            name: Training(collections, options.steps, period, folder / str(number))
            for number, (name, (collections, period, _)) in enumerate(ARMS.items())
        }
        runs: dict[str, Callable[[], float]] = {name: arm.run for name, arm in arms.items()}
        interleave(runs, options.rounds)
        model = arms["plain"].model
        print(
            f"CNN of {model.count_params():,} parameters, batch {_BATCH}; blocks of "
            f"{options.steps} steps, {options.rounds} rounds, {options.threads} threads"
        )
        print(_report(arms))
        for arm in arms.values():
            if arm.hook is not None:
                arm.hook.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
