"""Checkpoints of stopped scikit-learn trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from vinedresser.capture.sklearn_.stages import stages_of
from vinedresser.objects.files import replacing


def save_checkpoint(estimator: Any, directory: Path, step: int) -> None:
    """Save an estimator atomically as ``step-<step>.npz``, without pickle.

    The file contains each numeric attribute that ends with an underscore under its name (lists as
    ``coefs_.0``, ...), the columns of trees as ``trees.<stage>.<tree>.<column>``, and ``params``,
    the parameters as JSON. In a pipeline, the names start with the step's name and a dot.

    Args:
        estimator: the estimator, fitted or not.
        directory: target directory; created if missing.
        step: number of completed steps.
    """
    steps = estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]
    arrays = {
        f"{name}.{key}" if name else key: array
        for name, one in steps
        for key, array in _arrays(one)
    }
    with replacing(directory / f"step-{step}.npz") as path, path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _arrays(estimator: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of an estimator by name."""
    if hasattr(estimator, "get_params"):
        yield "params", np.array(json.dumps(estimator.get_params(deep=False), default=str))
    for name, value in getattr(estimator, "__dict__", {}).items():
        if not name.endswith("_") or name.startswith("_"):
            continue
        several = isinstance(value, (list, tuple)) and any(np.ndim(one) for one in value)
        for key, one in enumerate(value) if several else [(None, value)]:
            array = (
                np.asarray(one) if isinstance(one, (np.ndarray, np.generic, float, int)) else None
            )
            if array is not None and array.dtype.kind in "biufcSU":
                yield (name if key is None else f"{name}.{key}"), array
    yield from _trees(estimator)


def _trees(estimator: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    stages = stages_of(estimator)
    for stage in range(stages.count if stages else 0):
        for number, tree in enumerate(stages.trees(stage) if stages else ()):
            for column, values in vars(tree).items():
                yield f"trees.{stage}.{number}.{column}", np.asarray(values)
