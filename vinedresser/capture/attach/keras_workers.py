"""`fit` of Keras under TensorFlow's MultiWorkerMirroredStrategy.

Keras 3.15 fails there in two places (https://github.com/keras-team/keras/issues/20585): it reduces
the batch of which it learns the shapes over workers although that is a part of each of them, and
the scalars that a step returns along their first axis, which they do not have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import keras

__all__ = ["repair_fit"]

# Versions whose `fit` was compared with that of one process (tests/capture/attach).
_TESTED = ("3.15.1",)


def repair_fit(report: Callable[[str], None]) -> None:
    """Let `fit`, `evaluate` and `predict` work if this process is one of several workers.

    Without such a strategy they remain as they are.

    Args:
        report: called with a sentence if this version of Keras is not known.
    """
    if keras.backend.backend() != "tensorflow" or not _has_peers():
        return
    if keras.__version__ not in _TESTED:
        report(
            f"Keras {keras.__version__}: fit under MultiWorkerMirroredStrategy is left as it is; "
            f"it is known to fail in some versions, and repaired in {', '.join(_TESTED)}"
        )
        return
    from keras.src.backend.tensorflow import trainer

    reduce_per_replica = trainer.reduce_per_replica
    build = trainer.TensorFlowTrainer._maybe_symbolic_build

    def reduced(values: Any, strategy: Any, reduction: str) -> Any:
        words = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}
        if reduction not in words or not trainer._collective_all_reduce_multi_worker(strategy):
            return reduce_per_replica(values, strategy, reduction)
        return keras.tree.map_structure(
            lambda value: strategy.reduce(words[reduction], value, axis=None), values
        )

    def built(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = model.distribute_strategy
        if iterator is None or not trainer._collective_all_reduce_multi_worker(strategy):
            build(model, iterator=iterator, data_batch=data_batch)
            return
        for _, _, batches in iterator:
            data_batch = keras.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            break
        with strategy.scope():
            model._symbolic_build(data_batch=data_batch)

    trainer.reduce_per_replica = reduced
    trainer.TensorFlowTrainer._maybe_symbolic_build = built


def _has_peers() -> bool:
    """Return whether TensorFlow's configuration names several workers."""
    try:
        workers = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]["worker"]
    except (KeyError, TypeError, ValueError):
        # TensorFlow itself refuses an invalid one.
        return False
    return isinstance(workers, list) and len(workers) > 1
