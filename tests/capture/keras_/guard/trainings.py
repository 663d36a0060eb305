"""Keras trainings, on any backend, in which a gradient stops being finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from vinedresser.capture import Hook
from vinedresser.snapshots.settings import SnapshotSettings

BAD_STEP, BAD_ROW, BATCH = 4, 5, 16


class Distance(keras.losses.Loss):  # type: ignore[misc]
    """The weighted distance of embeddings [batch, 3] from zero, where it has no derivative."""

    def call(self, weights: Any, found: Any) -> Any:
        """Return the distances [batch]."""
        return keras.ops.sqrt(keras.ops.sum((found * weights) ** 2, axis=1))


class Half(keras.losses.Loss):  # type: ignore[misc]
    """A ranking loss in half precision, whose exponential overflows above 65504."""

    def call(self, wanted: Any, found: Any) -> Any:
        """Return the losses [batch] of values [batch, 3]."""
        exponential = keras.ops.exp(keras.ops.cast(wanted - found, "float16"))
        return keras.ops.mean(keras.ops.cast(keras.ops.log(1 + exponential), "float32"), axis=1)


def data(*, half: bool = False) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return images and weights or targets; one sample of the bad step breaks it."""
    generator = np.random.default_rng(0)
    images = generator.normal(size=(7 * BATCH, 8, 8, 1)).astype(np.float32)
    wanted = np.ones((len(images), 3), np.float32)
    wanted[BAD_STEP * BATCH + BAD_ROW] = 300.0 if half else 0.0
    return images, wanted


def network() -> Any:
    """Return a network with batch normalization and dropout, the same at each call."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(3),
        ]
    )


def distances(**options: Any) -> Any:
    """Return the compiled network with the distance as its loss."""
    model = network()
    model.compile("adam", Distance(), **options)
    return model


def halves() -> Any:
    """Return the compiled network with the loss in half precision."""
    model = network()
    model.compile("adam", Half())
    return model


def compiled_by_xla() -> Any:
    """Return the network, compiled by XLA."""
    return distances(jit_compile=True)


def other_model() -> Any:
    """Return another model."""
    model = keras.Sequential([keras.layers.Input((8, 8, 1)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(3))
    model.compile("adam", Distance())
    return model


def train(
    run: Path | str | None,
    model: Any,
    *,
    half: bool = False,
    snapshots: SnapshotSettings | None = None,
    sampled: bool = False,
) -> tuple[list[bytes], list[str]]:
    """Train with a guard, or without a hook; return the bits of the weights and the problems."""
    hook = None
    if run is not None:
        hook = Hook(run, guard="nonfinite", snapshots=snapshots).watch(model)
    images, wanted = data(half=half)
    weights = np.linspace(0.5, 1, len(images), dtype=np.float32) if sampled else None
    try:
        model.fit(images, wanted, batch_size=BATCH, shuffle=False, verbose=0, sample_weight=weights)
    finally:
        if hook is not None:
            hook.close()
    bits = [
        np.asarray(keras.ops.convert_to_numpy(variable.value)).tobytes()
        for variable in model.variables
    ]
    return bits, [] if hook is None else hook.problems
