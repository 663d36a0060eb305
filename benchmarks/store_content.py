"""Contents and temporary folders of the store benchmarks."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tensors", "fresh", "large_tensors", "mlp_tensors", "resnet_tensors", "timed"]

Tensors = dict[str, NDArray[np.float32]]

# A tiny MLP (64-32-32-10) with all its tensors: parameters, gradients, outputs, loss.
_MLP_WIDTHS = (64, 32, 32, 10)
_BATCH = 16


def large_tensors() -> Tensors:
    """Return 20 tensors of 1 KB to 4 MB, log-uniform: 10 MB per step."""
    generator = np.random.default_rng(0)
    sizes = np.geomspace(1 << 8, 1 << 20, 20).astype(int)
    return {
        f"gradients/layers.{number}.weight": generator.standard_normal(size, np.float32)
        for number, size in enumerate(generator.permutation(sizes))
    }


def resnet_tensors() -> Tensors:
    """Return 157 tensors of 88 MB in total, like one step of a small ResNet-18."""
    generator = np.random.default_rng(0)
    sizes = generator.permutation(np.geomspace(1 << 6, 1 << 20, 157).astype(int))
    scale = 88e6 / 4 / sizes.sum()
    return {
        f"outputs/layers.{number}": generator.standard_normal(int(size * scale), np.float32)
        for number, size in enumerate(sizes)
    }


def mlp_tensors() -> Tensors:
    """Return the 19 tensors of one step of a tiny MLP."""
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(_MLP_WIDTHS)):
        for kind in ("weights", "gradients"):
            shapes[f"{kind}/layers.{layer}.weight"] = (outputs, inputs)
        for kind in ("biases", "gradients"):
            shapes[f"{kind}/layers.{layer}.bias"] = (outputs,)
        shapes[f"outputs/layers.{layer}"] = (_BATCH, outputs)
        shapes[f"outputs/relu{layer}"] = (_BATCH, outputs)
    shapes["outputs/MLP"] = (_BATCH, _MLP_WIDTHS[-1])
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@contextmanager
def fresh(directory: Path) -> Iterator[Path]:
    """Yield a new folder, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def timed(work: Callable[[], object]) -> float:
    """Return the duration of a function call in seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
