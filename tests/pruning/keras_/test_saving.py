"""Pruned Keras models through the functions that all frameworks share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from vinedresser.pruning import load, prune, save

EXAMPLE = np.random.default_rng(0).normal(size=(2, 12, 12, 3)).astype("float32")


def build() -> Any:
    """Return a small network with random weights."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
            layers.Conv2D(12, 3, name="second"),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(5, name="head"),
        ]
    )


@pytest.mark.thorough
def test_rounds_saved_and_loaded(tmp_path: Path) -> None:
    pruned = prune(prune(build(), EXAMPLE, 5), EXAMPLE, 3, criterion="l2")
    assert [plan.count for plan in pruned.plans] == [5, 3]
    assert pruned.after.parameters == sum(
        int(np.prod(variable.shape)) for variable in pruned.model.trainable_variables
    )
    assert pruned.after.size_bytes == sum(
        variable.numpy().nbytes for variable in pruned.model.variables
    )
    save(pruned, tmp_path / "pruned")
    served = load(tmp_path / "pruned", build)
    expected = keras.ops.convert_to_numpy(pruned.model(EXAMPLE, training=False))
    found = keras.ops.convert_to_numpy(served(EXAMPLE, training=False))
    np.testing.assert_array_equal(found, expected)


# Keras itself converts TensorFlow's variables so when it saves them.
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_keras_file_computes_the_same(tmp_path: Path) -> None:
    pruned = prune(build(), EXAMPLE, 5).model
    pruned.save(tmp_path / "pruned.keras")
    served = keras.models.load_model(tmp_path / "pruned.keras")
    expected, found = (
        keras.ops.convert_to_numpy(one(EXAMPLE, training=False)) for one in (pruned, served)
    )
    np.testing.assert_array_equal(found, expected)
