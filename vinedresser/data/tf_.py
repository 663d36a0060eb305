"""Data sets as a `tf.data.Dataset` of batches: single records would cost thirty times as much."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import tensorflow as tf

from vinedresser.data.feed import Feed
from vinedresser.data.records import Batch
from vinedresser.errors import ConfigError


def tf_dataset(dataset: Feed, *, signature: Any = None) -> Any:
    """Return a data set's batches as a `tf.data.Dataset`.

    Each iteration yields the rest of the current epoch, as that of a `Dataset` does. The
    cardinality is that of a whole epoch: an iteration that resumes in the middle of one is shorter.
    The position is that behind the last batch that TensorFlow has drawn: with ``prefetch``, it is
    ahead of the training. Once another iterator has begun, an earlier one raises.

    Args:
        signature: structure of `tf.TensorSpec` of a batch, whose first dimension is the records;
            the values have the same structure, and are stacked. None: the values are `bytes`, and
            a batch is a tensor of strings, (records,), such as `tf.io.parse_example` takes.

    Raises:
        ConfigError: in an iteration, values are not `bytes`, and there is no signature; another
            iteration has begun since, or a position was loaded.
        DamagedData: in an iteration, more records are damaged than may be left out.
    """
    spec = tf.TensorSpec((None,), tf.string) if signature is None else signature
    specs = tf.nest.flatten(spec)
    length = dataset.epoch_length
    ended = False

    def epoch() -> Generator[Batch, None, None]:
        nonlocal ended
        if ended:
            # For `repeat`, which ends with an empty iteration.
            ended = False
            return
        yield from dataset
        ended = length is not None

    begun = 0
    batches = epoch()

    def begin() -> Any:
        nonlocal begun, batches
        # This ends one that was broken off.
        begun, batches = begun + 1, epoch()
        return np.int64(begun)

    def draw(iteration: Any) -> list[Any]:
        if iteration != begun:
            raise ConfigError(
                "another iterator of this tf_dataset has begun and continued from its position; "
                "iterate over that of a second data set"
            )
        batch = next(batches, None)
        if batch is None:
            return [False, *map(_nothing, specs)]
        if signature is None:
            return [True, _strings(batch.values)]
        return [True, *tf.nest.flatten(_stacked(batch.values, spec))]

    def drawn(iteration: Any) -> Any:
        kinds = [tf.bool, *(spec.dtype for spec in specs)]
        more, *leaves = tf.numpy_function(draw, [iteration], kinds)
        shaped = [tf.ensure_shape(one, of.shape) for one, of in zip(leaves, specs, strict=True)]
        return more, tf.nest.pack_sequence_as(spec, shaped)

    # With `from_generator`, TensorFlow has the allocator return memory to the system at once, for
    # the rest of the process: reading takes up to 1.8 times as long.
    numbers = tf.data.Dataset.range(1).map(lambda _: tf.numpy_function(begin, [], tf.int64))
    endless = numbers.flat_map(lambda number: tf.data.Dataset.from_tensors(number).repeat())
    # Functions that return some of their arguments are not run by TensorFlow.
    made = endless.map(drawn).take_while(lambda more, _: more).map(lambda _, batch: batch)
    if length is not None:
        # For the cardinality; `assert_cardinality` makes an earlier end an error.
        made = made.repeat().take(length)
    options = tf.data.Options()
    # By default, TensorFlow draws batches before it is asked for them, also for a later `map`: the
    # position would be ahead.
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.map_parallelization = False
    return made.with_options(options)


def _nothing(spec: Any) -> Any:
    """Return an array of a tensor's type, for the end."""
    shape = [size or 0 for size in spec.shape]
    empty = b"" if spec.dtype == tf.string else 0
    return np.full(shape, empty, spec.dtype.as_numpy_dtype)


def _strings(values: list[Any]) -> Any:
    kinds = {type(value).__name__ for value in values if not isinstance(value, bytes)}
    if kinds:
        raise ConfigError(f"values of the type {', '.join(sorted(kinds))} need a signature")
    return np.array(values, dtype=object)


def _stacked(values: list[Any], spec: Any) -> Any:
    return tf.nest.map_structure(
        lambda one, *leaves: np.stack(leaves).astype(one.dtype.as_numpy_dtype, copy=False),
        spec,
        *values,
    )
