"""Rules about the inside of a model, on Keras trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rules.inside_trainings import found
from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.activations.dying_relu import DyingRelu
from vinedresser.rules.activations.saturated_activation import SaturatedActivation
from vinedresser.rules.activations.stale_batch_norm import StaleBatchNorm
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.optimisation.learning_rate_too_low import LearningRateTooLow
from vinedresser.rules.tensors.bad_initialisation import BadInitialisation
from vinedresser.rules.tensors.identical_units import IdenticalUnits
from vinedresser.rules.tensors.no_signal import NoSignal
from vinedresser.rules.tensors.vanishing_gradient import VanishingGradient
from vinedresser.store.reading.reader import Run, open_run

# Raised by Keras itself when it converts a variable to an array.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

KINDS: tuple[type[Rule], ...] = (
    BadInitialisation,
    IdenticalUnits,
    StaleBatchNorm,
    VanishingGradient,
    DyingRelu,
    SaturatedActivation,
    LearningRateTooLow,
    NoSignal,
)


def trained(directory: Path, hidden: Callable[[Any], list[Any]], rate: float, scale: float) -> Run:
    """Fit a classifier of digits for 207 steps.

    Args:
        directory: directory of the run.
        hidden: returns the layers before the last, given ``keras.layers``.
        rate: learning rate of Adam.
        scale: factor of the inputs.
    """
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            *hidden(keras.layers),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    data = digits()
    wanted = capture_for(kind() for kind in KINDS).collections
    with Hook(directory, collections=wanted, parameters={"lr": rate}, total_steps=207) as hook:
        hook.watch(model)
        model.fit(
            data.x.numpy() * scale, data.y.numpy(), batch_size=64, epochs=9, verbose=0, shuffle=True
        )
    return open_run(directory)


def zeros(layers: Any) -> list[Any]:
    """Return layers with zero weights."""
    return [
        layers.Dense(32, activation="relu", kernel_initializer="zeros"),
        layers.Dense(32, activation="relu", kernel_initializer="zeros"),
    ]


def dead(layers: Any) -> list[Any]:
    """Return units that are below zero for all inputs."""
    import keras

    below = keras.initializers.Constant(-20.0)
    return [layers.Dense(32, activation="relu", bias_initializer=below)]


def tanh(layers: Any) -> list[Any]:
    """Return an ordinary layer."""
    return [layers.Dense(32, activation="tanh")]


def normed(layers: Any) -> list[Any]:
    """Return a layer whose running statistics hardly move."""
    return [layers.Dense(32), layers.BatchNormalization(momentum=0.9999), layers.ReLU()]


def usual(layers: Any) -> list[Any]:
    """Return healthy layers of every kind that the rules check."""
    return [
        layers.Dense(32),
        layers.BatchNormalization(momentum=0.9),
        layers.ReLU(),
        layers.Dense(32, activation="tanh"),
        layers.Dense(32, activation="sigmoid"),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hidden", "rate", "scale", "faults"),
    [
        (zeros, 1e-3, 1.0, {"bad_initialisation", "identical_units"}),
        pytest.param(dead, 1e-3, 1.0, {"dying_relu"}, marks=pytest.mark.slow),
        pytest.param(tanh, 1e-3, 1e4, {"saturated_activation"}, marks=pytest.mark.slow),
        pytest.param(tanh, 1e-7, 1.0, {"learning_rate_too_low"}, marks=pytest.mark.slow),
        (normed, 1e-3, 1.0, {"stale_statistics"}),
    ],
)
def test_a_faulty_training_is_found(
    tmp_path: Path,
    hidden: Callable[[Any], list[Any]],
    rate: float,
    scale: float,
    faults: set[str],
) -> None:
    run = trained(tmp_path / "run", hidden, rate, scale)
    assert faults <= {one.fault for one in found(run, *(kind() for kind in KINDS))}


@pytest.mark.thorough
def test_a_correct_training_is_ignored(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", usual, 5e-3, 1.0)
    assert found(run, *(kind() for kind in KINDS)) == []
