"""Labels that a mask leaves out of the loss are recorded as ones that are ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.capture.keras_.zoo import everything

import keras  # isort: skip
from vinedresser.capture import Hook, open_run
from vinedresser.rules.signals.losses.compared import Batches

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

WORDS = np.random.default_rng(0).integers(0, 9, (8, 5))


def tagger(*, masked: bool) -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Embedding(9, 4, mask_zero=masked), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def fitted(path: Path | None, labels: NDArray[Any], *, masked: bool) -> list[NDArray[Any]]:
    model = tagger(masked=masked)
    hook = None if path is None else Hook(path, collections=everything()).watch(model)
    model.fit(WORDS, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
    model.evaluate(WORDS, labels, batch_size=8, verbose=0)
    if hook is not None:
        hook.close()
        assert hook.problems == []
    weights: list[NDArray[Any]] = model.get_weights()
    return weights


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "masked"),
    [
        ("int64", True),
        ("int64", False),
        pytest.param("uint8", True, marks=pytest.mark.slow),
        ("float32", True),
    ],
)
def test_masked_labels(dtype: str, masked: bool, tmp_path: Path) -> None:
    labels = (WORDS % 3).astype(dtype)
    plain = fitted(None, labels, masked=masked)
    hooked = fitted(tmp_path / "run", labels, masked=masked)
    assert all(np.array_equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    # Numbers that are no integers are recorded as they are.
    ignored = (WORDS == 0) & masked & (dtype != "float32")
    expected = np.where(ignored, -100, labels.astype(int))
    view = run.tensor("labels/batch")
    np.testing.assert_array_equal(view.value(0, "train"), expected)
    np.testing.assert_array_equal(view.value(2, "eval"), expected)
    batches = Batches(every=1)
    batches.begin(run.info)
    for step in run.follow():
        batches.update(step)
        for one in batches.compared:
            assert len(one.labels) == (8 if not ignored.any() else (~ignored).sum())
