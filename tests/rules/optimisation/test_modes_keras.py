"""Custom Keras loops: their mode, and the layers they train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.rules.inside_trainings import found
from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.rules.optimisation.wrong_mode import WrongMode
from vinedresser.store.reading.reader import open_run

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def trained(
    directory: Path | None, training: bool | None, *, only: str = "", frozen: bool = False
) -> list[NDArray[Any]]:
    """Train in a custom loop; return the final weights.

    Args:
        directory: directory of the run; None for no hook.
        training: ``training`` argument of the call in train steps; None for no argument.
        only: prefix of the names of the layers to update; "" for all.
        frozen: whether the first layer is frozen.
    """
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, activation="relu", name="first", trainable=not frozen),
            keras.layers.Dropout(0.2, name="drop"),
            keras.layers.Dense(32, activation="relu", name="second"),
            keras.layers.Dense(10, name="head"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer, data = keras.optimizers.Adam(3e-3), digits()
    layers = [layer for layer in model.layers if layer.name.startswith(only)]
    variables = [each for layer in layers for each in layer.trainable_variables]
    optimizer.build(variables)
    called = {} if training is None else {"training": training}
    hook = None
    if directory is not None:
        wanted = capture_for([WrongMode(), UntrainedParameters()]).collections
        hook = Hook(directory, collections=wanted).watch(model, loss, optimizer)
    for step in range(90):
        if step % 30 == 10:
            loss(data.y_eval.numpy(), model(data.x_eval.numpy(), training=False))
        rows = slice(step * 8, step * 8 + 64)
        with tf.GradientTape() as tape:
            value = loss(data.y[rows].numpy(), model(data.x[rows].numpy(), **called))
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [variable.numpy() for variable in model.trainable_variables]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("training", "fires"),
    [
        (False, True),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(None, True, marks=pytest.mark.slow),
    ],
)
def test_training_argument_of_the_call(training: bool | None, fires: bool, tmp_path: Path) -> None:
    trained(tmp_path / "run", training)
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [*range(90)]
    assert run.steps("eval").tolist() == [10, 40, 70]
    assert run.info.dropout == {"drop": 0.2}
    findings = found(run, WrongMode(), UntrainedParameters())
    assert [finding.fault for finding in findings] == (["wrong_mode"] if fires else [])
    if fires:
        assert "dropout is inactive" in findings[0].cause


@pytest.mark.slow
def test_updated_layers(tmp_path: Path) -> None:
    trained(tmp_path / "some", True, only="second")
    (finding,) = found(open_run(tmp_path / "some"), UntrainedParameters())
    assert (finding.severity, finding.fault) == ("warning", "untrained_parameters")
    assert finding.evidence["names"] == ["weights/first.kernel", "weights/head.kernel"]
    trained(tmp_path / "frozen", True, frozen=True)
    assert found(open_run(tmp_path / "frozen"), UntrainedParameters()) == []


@pytest.mark.slow
def test_the_training_is_bitwise_identical(tmp_path: Path) -> None:
    ours, plain = trained(tmp_path / "run", False), trained(None, False)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)
