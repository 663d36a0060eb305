"""A watched Keras model gives the same outputs, and its layer comes from the same pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.unlimited import UNLIMITED
from vinedresser.errors import ConfigError
from vinedresser.serving import RequestRecorder, RequestStore, describe_model, watch

pytestmark = pytest.mark.thorough


def network(keras: Any) -> Any:
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(4, 3, activation="relu", name="conv")(inputs)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(hidden))


@pytest.mark.parametrize("layer", [None, "conv"])
def test_outputs_are_bit_for_bit_the_same(tmp_path: Path, layer: str | None) -> None:
    import keras

    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = network(keras)
    images = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype(np.float32)
    called, predicted = np.asarray(model(images)), model.predict(images, verbose=0)
    batch = model.predict_on_batch(images)
    watched = watch(model, recorder, layer=layer)
    np.testing.assert_array_equal(np.asarray(watched(images, training=False)), called)
    np.testing.assert_array_equal(watched.predict(images, verbose=0), predicted)
    np.testing.assert_array_equal(watched.predict_on_batch(images), batch)
    assert watched.name == model.name
    assert recorder.flush()
    assert recorder.problems == []
    found = RequestStore(recorder.location).after(None)[0]
    assert len(found) == 15
    assert found.columns["prediction"].tolist() == called.argmax(1).tolist() * 3
    if layer is None:
        assert "embedding" not in found.columns
    else:
        expected = np.asarray(model.get_layer("conv")(images)).mean((1, 2))
        np.testing.assert_allclose(found.columns["embedding"][:5], expected, rtol=1e-5, atol=1e-6)
        baseline = describe_model(model, images, layer=layer)
        np.testing.assert_array_equal(baseline["embedding"], found.columns["embedding"][:5])
    watched.close()
    watched(images)
    recorder.close()
    assert len(RequestStore(recorder.location).after(None)[0]) == 15


def test_a_layer_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    import keras

    class Custom(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2, name="dense")

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    with pytest.raises(ConfigError, match="no layer 'con'; did you mean conv"):
        watch(network(keras), recorder, layer="con")
    model = Custom()
    model(np.zeros((1, 2), np.float32))
    with pytest.raises(ConfigError, match="no graph of layers"):
        watch(model, recorder, layer="dense")
