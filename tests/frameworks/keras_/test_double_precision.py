"""Keras computes in float64 where pruning is proved."""

from __future__ import annotations

import numpy as np
import pytest

from tests.pruning.keras_.zoo import keras
from vinedresser.errors import PruningError
from vinedresser.frameworks.keras_.double_precision import double_precision


def root_of_two() -> np.ndarray:
    """Return what Keras computes for it from a float64 tensor."""
    two = keras.ops.convert_to_tensor(np.array([2.0]))
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.matmul(keras.ops.sqrt(two), two))) / 2


def test_float64_stays_float64_within_the_block_only() -> None:
    before = keras.backend.result_type("float64")
    with double_precision(), double_precision():
        np.testing.assert_allclose(root_of_two(), np.sqrt(2), rtol=1e-15)
    with pytest.raises(ZeroDivisionError), double_precision():
        raise ZeroDivisionError
    assert keras.backend.result_type("float64") == before


def test_a_version_of_keras_that_cannot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a version without the table says.
    monkeypatch.setattr(keras.backend, "result_type", lambda *_: "float32")
    with (
        pytest.raises(PruningError, match=r"computes in float32 .* use Keras 3\.15, or"),
        double_precision(),
    ):
        pass
