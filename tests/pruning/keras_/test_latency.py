"""Measured latencies of Keras models."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from tests.pruning.keras_.test_saving import EXAMPLE, build
from vinedresser.pruning import PruningError
from vinedresser.pruning.latency import measured_latency


def test_more_work_takes_longer_and_nothing_changes() -> None:
    """Thousands of times as many operations: no load of the machine makes up for that."""
    layers = keras.layers
    large = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(512, 3),
            layers.Dropout(0.5),
            layers.Conv2D(512, 3),
        ]
    )
    small = build()
    before = [variable.numpy() for model in (large, small) for variable in model.variables]
    found = measured_latency([large, small], EXAMPLE, budget=0)
    assert len(found) == 2
    assert all(math.isfinite(one) and one > 0 for one in found)
    assert found[0] > found[1]
    after = [variable.numpy() for model in (large, small) for variable in model.variables]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_example_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(PruningError, match=r"has shape \[2, 12, 12, 1\]"):
        measured_latency([build()], EXAMPLE[..., :1])
