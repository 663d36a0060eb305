"""The rule `drift` in Keras: `fit` on rows that change between two epochs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.drift import Drift
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

pytestmark = [
    pytest.mark.thorough,
    # Of Keras itself, whenever it makes an array of a variable.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def findings(
    directory: Path, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> list[Finding]:
    """Train on images for eight epochs, and on changed ones for six."""
    keras.utils.set_random_seed(0)
    data = digits()
    x, y, x_eval, y_eval = (one.numpy() for one in (data.x, data.y, data.x_eval, data.y_eval))
    x, x_eval = x.reshape(-1, 8, 8, 1), x_eval.reshape(-1, 8, 8, 1)
    model = keras.Sequential(
        [layers.Conv2D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    rules = [Drift()]
    with Hook(directory, collections=capture_for(rules).collections) as hook:
        hook.watch(model)
        for images, epochs in ((x, 8), (change(x), 6)):
            model.fit(
                images,
                y,
                batch_size=64,
                epochs=epochs,
                validation_data=(x_eval, y_eval),
                verbose=0,
            )
    return judge(open_run(directory), rules)


def test_images_that_are_inverted(tmp_path: Path) -> None:
    (found,) = findings(tmp_path / "run", lambda x: 1 - x)
    assert found.fault == "drift"
    assert 8 * 23 <= found.since <= 9 * 23


def test_images_that_are_the_same(tmp_path: Path) -> None:
    assert findings(tmp_path / "run", lambda x: x) == []
