"""Layers that a Keras model gets after it is watched belong to collections by type and object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capture.keras_.zoo import classifier, final_bits, images

import keras  # isort: skip
import tensorflow as tf  # isort: skip
from vinedresser.capture import Collection, Hook, SaveConfig, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_BY_TYPE = Collection(types=("Dense",), kinds=("weights", "outputs"), save=SaveConfig(every=1))
_NAMES = ["outputs/late.head", "weights/late.head.kernel"]


class Late(keras.layers.Layer):  # type: ignore[misc]
    """Makes its layer when it is built."""

    def build(self, shape: Any) -> None:
        self.head = keras.layers.Dense(4)
        self.head.build(shape)

    def call(self, x: Any) -> Any:
        return self.head(x)


class Flat(keras.Model):  # type: ignore[misc]
    """A model whose only dense layer is there once it was built."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = keras.layers.Flatten()
        self.late = Late()

    def call(self, x: Any) -> Any:
        return self.late(self.flatten(x))


def fit(model: Any, **options: Any) -> None:
    classifier(model, **options)
    model.fit(*images(), batch_size=7, verbose=0)


def loop(model: Any, *, compiled: bool) -> None:
    """Train by hand, for four steps."""
    optimizer = keras.optimizers.SGD(0.1)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    run = tf.function(step) if compiled else step
    x, y = images()
    for start in range(0, 28, 7):
        run(tf.constant(x[start : start + 7]), tf.constant(y[start : start + 7]))


_TRAININGS: dict[str, Callable[[Any], None]] = {
    "fit": fit,
    "fit line by line": lambda model: fit(model, run_eagerly=True),
    "loop": lambda model: loop(model, compiled=False),
    "tf.function": lambda model: loop(model, compiled=True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("training", _TRAININGS)
def test_a_late_layer_is_selected_by_type_from_its_first_step(
    training: str, tmp_path: Path
) -> None:
    def train(attach: Any) -> Any:
        model = Flat()
        attach(model)
        _TRAININGS[training](model)
        return model

    plain = final_bits(train)
    with Hook(tmp_path, collections={"dense": _BY_TYPE}) as hook:
        assert final_bits(train, hook.watch) == plain
        assert hook.problems == []
    run = open_run(tmp_path)
    assert run.tensor_names() == _NAMES
    for name in _NAMES:
        assert run.tensor(name).steps().tolist() == [0, 1, 2, 3]
    assert run.info is not None
    assert run.info.modules["late.head"][0] == "Dense"


@pytest.mark.thorough
def test_a_layer_added_after_watching_is_selected_by_type(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    with Hook(tmp_path, collections={"dense": _BY_TYPE}) as hook:
        hook.watch(model)
        model.add(keras.layers.Dense(4))
        fit(model)
        assert hook.problems == []
    assert open_run(tmp_path).tensor_names() == ["outputs/dense", "weights/dense.kernel"]


def test_a_model_may_be_built_by_a_prediction(tmp_path: Path) -> None:
    model = Flat()
    by_type = Collection(
        types=("Dense",), kinds=("outputs",), save=SaveConfig(every=1, modes=("predict",))
    )
    with Hook(tmp_path, collections={"dense": by_type}) as hook:
        hook.watch(model)
        for _ in range(2):
            model.predict(images()[0], verbose=0)
    assert open_run(tmp_path).tensor_names() == ["outputs/late.head"]
