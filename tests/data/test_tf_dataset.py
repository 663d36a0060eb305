"""tf_dataset yields the batches of its data set as tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data import written
from vinedresser.data import Dataset, decode_example, encode_example, tf_dataset
from vinedresser.errors import ConfigError


@pytest.mark.thorough
def test_tensorflow_gets_the_same_batches(tmp_path: Path) -> None:
    import tensorflow as tf

    written.write_files(tmp_path / "data", [20, 13])
    paths = sorted(str(path) for path in (tmp_path / "data").iterdir())
    expected = list(tf.data.TFRecordDataset(paths).batch(5).as_numpy_iterator())
    batches = tf_dataset(Dataset(tmp_path / "data", batch_size=5))
    for _ in range(2):
        found = list(batches.as_numpy_iterator())
        assert [batch.tolist() for batch in found] == [batch.tolist() for batch in expected]
    # The cardinality is that of an epoch; what an iteration leaves is that of the next.
    assert batches.cardinality() == batches.map(tf.identity).cardinality() == len(expected) == 7
    assert [len(list(some)) for some in (batches.take(2), batches, batches)] == [2, 5, 7]
    # What TensorFlow has drawn is the position.
    dataset = Dataset(tmp_path / "data", batch_size=5, seed=1)
    # A function that TensorFlow would call in parallel.
    drawn = iter(tf_dataset(dataset).map(lambda some: tf.strings.join([some, ""])))
    first = [next(drawn).numpy().tolist() for _ in range(3)]
    resumed = Dataset(tmp_path / "data", batch_size=5, seed=1)
    resumed.load_state_dict(dataset.state_dict())
    rest = [batch.values for batch in resumed]
    whole = [batch.values for batch in Dataset(tmp_path / "data", batch_size=5, seed=1)]
    assert first + rest == whole
    # An earlier iterator takes nothing from a later one.
    batches = tf_dataset(Dataset(tmp_path / "data", batch_size=5, seed=1))
    earlier, later = iter(batches), iter(batches)
    both = [next(one).numpy().tolist() for one in (earlier, later)]
    with pytest.raises((ConfigError, tf.errors.OpError), match="another iterator of this tf_da"):
        next(earlier)
    assert both + [batch.numpy().tolist() for batch in later] == whole


@pytest.mark.thorough
def test_keras_trains_whole_epochs_without_a_warning(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.float32).reshape(12, 2))
    signature = (tf.TensorSpec((None, 1)), tf.TensorSpec((None, 1)))
    dataset = Dataset(
        tmp_path / "a.npy", batch_size=4, seed=1, decode=lambda row: (row[:1], row[1:])
    )
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tf_dataset(dataset, signature=signature), epochs=2, verbose=0, shuffle=False)
    assert dataset.delivered.iterations == 2
    assert model.optimizer.iterations == 6
    assert (dataset.epoch, dataset.state_dict()["batch"]) == (2, 0)


@pytest.mark.thorough
def test_a_signature_stacks_the_values(tmp_path: Path) -> None:
    import tensorflow as tf

    array = np.arange(24, dtype=np.float32).reshape(6, 4)
    np.save(tmp_path / "a.npy", array)
    signature = (tf.TensorSpec((None, 4), tf.float32), {"sum": tf.TensorSpec((None,), tf.float32)})
    dataset = Dataset(
        tmp_path / "a.npy", batch_size=4, decode=lambda row: (row, {"sum": row.sum()})
    )
    rows, sums = zip(*tf_dataset(dataset, signature=signature), strict=True)
    np.testing.assert_array_equal(np.concatenate(rows), array)
    np.testing.assert_array_equal(np.concatenate([one["sum"] for one in sums]), array.sum(1))
    with pytest.raises((ConfigError, tf.errors.OpError), match="type ndarray need a signature"):
        list(tf_dataset(Dataset(tmp_path / "a.npy", batch_size=4)))


@pytest.mark.thorough
def test_examples_are_those_of_tensorflow() -> None:
    import tensorflow as tf

    value = {"i": [2**63 - 1, -1, 0, 300], "f": [0.1, -2.5], "b": [b"", b"\0\xff"], "t": "é"}
    theirs = tf.train.Example.FromString(encode_example(value))
    lists = theirs.features.feature
    assert list(lists["i"].int64_list.value) == value["i"]
    assert list(lists["f"].float_list.value) == [np.float32(0.1), -2.5]
    assert list(lists["b"].bytes_list.value) == value["b"]
    lists["empty"].float_list.SetInParent()
    found = decode_example(theirs.SerializeToString())
    assert {name: list(feature) for name, feature in found.items()} == {
        "i": value["i"],
        "f": [np.float32(0.1), -2.5],
        "b": value["b"],
        "t": ["é".encode()],
        "empty": [],
    }
