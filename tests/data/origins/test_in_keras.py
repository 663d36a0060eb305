"""Batches that Keras draws from a `tf.data.Dataset` carry the origins of their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.origins.numbered import BAD, CAPTURED, SIZE, certain, write
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.data import Dataset, tf_dataset
from vinedresser.replay.keras_.stepping import bisect, replay
from vinedresser.replay.origins import with_origins
from vinedresser.snapshots.reading import open_snapshot

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # The number of batches of an epoch is not fixed.
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
]


def decode(value: Any) -> tuple[Any, Any]:
    numbers = [np.nan if one is None else one for one in value["x"]]
    return np.array(numbers, np.float32), np.int64(value["y"])


def batches(folder: Path, **options: Any) -> Any:
    import tensorflow as tf

    dataset = Dataset(folder, batch_size=SIZE, decode=decode, **options)
    signature = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.int64))
    return tf_dataset(dataset, signature=signature)


def network() -> Any:
    """Build the model; also for replays."""
    import keras

    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    outputs = keras.layers.Dense(2)(keras.layers.Dense(4, activation="tanh")(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.thorough
def test_each_step_has_the_records_that_it_drew(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")
    weights = []
    for run in (None, tmp_path / "run"):
        model = network()
        hook = None if run is None else Hook(run, collections=CAPTURED).watch(model)
        drawn = batches(folder, seed=1)
        model.fit(drawn, epochs=2, verbose=0, shuffle=False, validation_data=batches(folder))
        weights.append(model.get_weights())
        if hook is not None:
            # Reading ahead: what is known is right, and no less afterwards.
            model.fit(batches(folder, seed=2).prefetch(3), epochs=2, verbose=0, shuffle=False)
            model.fit(drawn, verbose=0, shuffle=False)
            hook.close()
    assert all(np.array_equal(one, other) for one, other in zip(*weights, strict=True))
    steps = list(open_run(tmp_path / "run").follow())
    found = [(step.mode, certain(step, "Functional")) for step in steps]
    assert [mode for mode, _ in found].count("train") == 5 * 8
    known = [one for mode, one in found if mode == "train"]
    assert known[:16] == [True] * 16
    assert [one for mode, one in found if mode == "eval"] == [True] * 2
    assert None in known[16:32]
    assert known[32:] == [True] * 8


@pytest.mark.thorough
def test_a_bad_record_is_named_by_the_replay(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", bad=True)
    model = network()
    with Hook(tmp_path / "run", guard="nonfinite") as hook:
        hook.watch(model)
        model.fit(batches(folder, seed=1), verbose=0, shuffle=False)
    (place,) = (tmp_path / "run" / "snapshots").iterdir()
    snapshot = open_snapshot(place)
    found = with_origins(bisect(replay(snapshot, f"{__name__}:network")), snapshot)
    assert found is not None
    (origin,) = found.origins
    assert (Path(origin.uri).name, origin.record) == (f"{BAD[0]}.jsonl", BAD[1])
    assert json.loads(Path(origin.uri).read_bytes().splitlines()[origin.record])["x"][0] is None
