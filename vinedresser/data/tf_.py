"""Data sets as a `tf.data.Dataset` of batches: single records would cost thirty times as much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from vinedresser.data.feed import Feed
from vinedresser.errors import ConfigError

__all__ = ["tf_dataset"]


def tf_dataset(dataset: Feed, *, signature: Any = None) -> Any:
    """Return a data set's batches as a `tf.data.Dataset`.

    Each iteration yields the rest of the current epoch, as that of a `Dataset` does. The
    cardinality is that of a whole epoch: an iteration that resumes in the middle of one is shorter.
    The position is that behind the last batch that TensorFlow has drawn: with ``prefetch``, it is
    ahead of the training.

    Args:
        dataset: the data set.
        signature: structure of `tf.TensorSpec` of a batch, whose first dimension is the records;
            the values have the same structure, and are stacked. None: the values are `bytes`, and
            a batch is a tensor of strings, (records,), such as `tf.io.parse_example` takes.

    Raises:
        ConfigError: in an iteration, values are not `bytes`, and there is no signature.
        DamagedData: in an iteration, more records are damaged than may be left out.
    """
    spec = tf.TensorSpec((None,), tf.string) if signature is None else signature
    length = dataset.epoch_length
    ended = False

    def batches() -> Iterator[Any]:
        nonlocal ended
        if ended:
            # For `repeat`, which ends with an empty iteration.
            ended = False
            return
        for batch in dataset:
            yield _strings(batch.values) if signature is None else _stacked(batch.values)
        ended = length is not None

    made = tf.data.Dataset.from_generator(batches, output_signature=spec)
    if length is not None:
        # For the cardinality; `assert_cardinality` makes an earlier end an error.
        made = made.repeat().take(length)
    options = tf.data.Options()
    # By default, TensorFlow draws a batch before it is asked for: the position would be ahead.
    options.experimental_optimization.inject_prefetch = False
    return made.with_options(options)


def _strings(values: list[Any]) -> Any:
    kinds = {type(value).__name__ for value in values if not isinstance(value, bytes)}
    if kinds:
        raise ConfigError(f"values of the type {', '.join(sorted(kinds))} need a signature")
    return np.array(values, dtype=object)


def _stacked(values: list[Any]) -> Any:
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *values)
