"""Trainings with Keras that rules are right about, and sound ones that come close to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.rules.frameworks import Case
from tests.rules.keras_.trainings import Data, Fitting, dense, diabetes, digits, split, stack

# The trainings have chosen the backend.
import keras  # isort: skip
from keras import layers  # isort: skip

__all__ = ["FAULTY", "SOUND"]

Array = NDArray[Any]
QUICK = frozenset({"one class"})
THOROUGH = frozenset(
    {
        "a learning rate far too large",
        "a penalty far too strong",
        "a rare class",
        "a relu before values on both sides of zero",
        "a usual training",
        "a weak penalty and a slow schedule",
        "evaluated rows in the order of their classes",
        "an overflow now and then",
        "batches that overflow float16",
        "inputs far too large",
        "labels of other rows",
        "no softmax",
        "the last rows of sorted ones held out",
        "zeros",
    }
)


def rules(*names: str) -> frozenset[str]:
    return frozenset(names)


def changed(data: Data, x: Array | None = None, y: Array | None = None) -> Data:
    """Return data with other training rows or labels."""
    return Data(data.x if x is None else x, data.y if y is None else y, data.x_eval, data.y_eval)


def of_others() -> Data:
    """Return digits with the labels of other rows."""
    data = digits()
    return changed(data, y=np.random.default_rng(1).permutation(data.y))


def drawn() -> Data:
    """Return rows and targets drawn at random, as the first examples of Keras do."""
    rng = np.random.default_rng(0)
    return split(rng.random((1000, 32)), rng.random((1000, 10)), 1000)


def one_class() -> Data:
    data = digits()
    return changed(data, y=np.full_like(data.y, 3))


def evaluated_in_order() -> Data:
    data = digits()
    order = np.argsort(data.y_eval, kind="stable")
    return Data(data.x, data.y, data.x_eval[order], data.y_eval[order])


def in_order() -> Data:
    """Return digits in the order of their classes."""
    data = digits()
    order = np.argsort(data.y, kind="stable")
    return changed(data, data.x[order], data.y[order])


def evaluated_on_training_rows() -> Data:
    data = digits()
    return Data(data.x, data.y, data.x[:397], data.y[:397])


def told() -> Data:
    """Return digits that have their labels beside the pixels."""
    data = digits()
    return changed(data, np.concatenate([data.x, 5 * np.eye(10, dtype="float32")[data.y]], 1))


def lost() -> Data:
    data = digits()
    return changed(data, np.zeros_like(data.x))


def rings(shift: float = 0.0) -> Data:
    """Return points of the plane, and whether they are in the inner of two rings.

    Args:
        shift: how far the inner ring is moved; by 3, a line separates the two.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1600, 2))
    y = (np.linalg.norm(x, axis=1) < 1.18).astype("int64")
    return split(x + shift * y[:, None], y, 1200)


def rare(apart: float) -> Data:
    """Return rows of which 3 in 100 are of another class, as far from the others as this."""
    rng = np.random.default_rng(0)
    y = (rng.random(2800) < 0.03).astype("int64")
    x = rng.normal(size=(2800, 20))
    x[:, 0] += apart * y
    return split(x, y, 2000)


def numbers() -> Data:
    """Return digits whose classes are given as if they were quantities."""
    data = digits()
    return Data(data.x, data.y.astype("float32"), data.x_eval, data.y_eval.astype("float32"))


def some() -> Data:
    """Return few rows to train on, a part of them with wrong labels."""
    data = digits()
    y = np.where(np.arange(100) % 5 == 0, 9 - data.y[:100], data.y[:100])
    return Data(data.x[:100], y, data.x_eval, data.y_eval)


def sentences(padding: float) -> Data:
    """Return rows of 32 words of which a share is padding, and whether a certain word is there."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, 50, (1500, 32))
    x[:, round(32 * (1 - padding)) :] = 0
    y = (x == 7).any(1).astype("int64")
    return Data(x[:1100], y[:1100], x[1100:], y[1100:])


def typed(divisor: float) -> Data:
    """Return sentences whose words are floating-point numbers, divided by a number."""
    data = sentences(0.3)
    return Data(
        (data.x / divisor).astype("float32"),
        data.y,
        (data.x_eval / divisor).astype("float32"),
        data.y_eval,
    )


def overflowing(every: int) -> Data:
    """Return digits; one of so many batches of 64 has a pixel that float16 cannot hold."""
    data = digits()
    x = data.x.copy()
    x[:: 64 * every, 0] = 1e6
    return changed(data, x)


def constant(value: float) -> Any:
    return keras.initializers.Constant(value)


def normed(momentum: float) -> list[Any]:
    """Return a layer with normalisation."""
    return [
        dense(32, None),
        lambda: layers.BatchNormalization(momentum=momentum),
        layers.ReLU,
    ]


def embedded() -> list[Any]:
    return [lambda: layers.Embedding(50, 16), layers.GlobalMaxPooling1D]


def halving(steps: int) -> Any:
    """Return a learning rate that is halved every so many steps."""
    return keras.optimizers.schedules.ExponentialDecay(3e-3, steps, 0.5)


def scaled(rate: float, **more: Any) -> Any:
    """Return an optimizer of mixed precision, which scales the loss."""
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(rate), **more)


def half() -> list[Any]:
    return [dense(32, "relu", dtype="mixed_float16")]


_SGD = keras.optimizers.SGD
_VALUE = dense(1, None)
_L2 = keras.regularizers.L2
_SUM = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
_IN_ORDER = {"shuffle": False}


def _negated(targets: Any, outputs: Any) -> Any:
    return -keras.ops.mean(keras.ops.square(targets - outputs), -1)


def regression(data: Callable[[], Data], **more: Any) -> Fitting:
    """Return a training on values."""
    given = {"last": _VALUE, "loss": "mse", "batch": 32, "epochs": 20, **more}
    return Fitting(data=data, **given)


FAULTY = {
    "the last rows of sorted ones held out": Case(
        Fitting(data=in_order, fit={"validation_split": 0.05}, epochs=4),
        rules("single_label"),
        "single_label",
    ),
    "zeros": Case(
        Fitting(hidden=[dense(kernel_initializer="zeros"), dense(kernel_initializer="zeros")]),
        rules(
            *("bad_initialisation", "identical_units", "dying_relu", "no_signal"),
            "loss_not_decreasing",
        ),
        "bad_initialisation",
    ),
    "dead units": Case(
        Fitting(hidden=[dense(bias_initializer=constant(-20.0))]),
        rules("dying_relu", "no_signal"),
        "dying_relu",
    ),
    "inputs far too large": Case(
        Fitting(hidden=stack(1, "tanh"), data=lambda: digits(1e4), rate=1e-3),
        rules("unnormalised_inputs", "saturated_activation"),
        "unnormalised_inputs",
    ),
    "targets far too large": Case(
        regression(lambda: diabetes(1e4)), rules("unnormalised_targets"), "unnormalised_targets"
    ),
    "a learning rate far too small": Case(
        Fitting(rate=1e-7), rules("learning_rate_too_low"), "learning_rate_too_low"
    ),
    "a learning rate far too large": Case(
        Fitting(rate=1.0, hidden=stack(2, "relu")),
        rules("learning_rate_too_high"),
        "learning_rate_too_high",
    ),
    "running means that lag": Case(
        Fitting(rate=1e-3, hidden=normed(0.9999), evaluate=True),
        rules("stale_batch_norm"),
        "stale_statistics",
    ),
    "many sigmoids": Case(
        Fitting(hidden=stack(8, "sigmoid"), optimizer=_SGD, rate=0.1),
        rules("vanishing_gradient"),
        "vanishing_gradient",
    ),
    "large weights in many layers": Case(
        Fitting(hidden=stack(16, "tanh", 1.5), optimizer=_SGD, rate=1e-6),
        rules("bad_initialisation", "saturated_activation"),
        "bad_initialisation",
    ),
    "tiny weights": Case(
        Fitting(
            hidden=[dense(32, "tanh", kernel_initializer=keras.initializers.RandomNormal(0, 1e-6))],
            last=dense(10, "softmax", kernel_initializer=keras.initializers.RandomNormal(0, 1e-6)),
            optimizer=_SGD,
            rate=1e-6,
        ),
        rules("no_signal", "bad_initialisation"),
        "bad_initialisation",
    ),
    "steps below the precision": Case(
        Fitting(optimizer=_SGD, rate=1e-14),
        rules("learning_rate_too_low", "no_signal", "loss_not_decreasing"),
        "learning_rate_too_low",
    ),
    "labels of other rows": Case(
        Fitting(data=of_others, evaluate=True, hidden=[dense(128)], rate=1e-2),
        rules("corrupt_labels"),
        "corrupt_labels",
    ),
    "a penalty far too strong": Case(
        Fitting(hidden=[dense(kernel_regularizer=_L2(10.0)) for _ in range(2)]),
        rules("over_regularisation"),
        "over_regularisation",
    ),
    "a schedule for another run": Case(
        Fitting(rate=halving(1)), rules("scheduler_not_stepped"), "learning_rate_too_low"
    ),
    "one class": Case(Fitting(data=one_class, epochs=4), rules("single_label"), "single_label"),
    "rows in the order of their classes": Case(
        Fitting(data=in_order, fit=_IN_ORDER, optimizer=_SGD, rate=0.1),
        rules("single_label"),
        "single_label",
    ),
    "training rows that are evaluated": Case(
        Fitting(data=evaluated_on_training_rows, evaluate=True, epochs=5),
        rules("data_leakage"),
        "data_leakage",
    ),
    "labels among the inputs": Case(
        Fitting(data=told, rate=0.1, epochs=3),
        rules("target_leakage"),
        "data_leakage",
    ),
    "an error with the wrong sign": Case(
        regression(diabetes, loss=_negated, rate=3e-2, epochs=20),
        rules("unbounded_loss"),
        "unbounded_loss",
    ),
    "inputs that are lost": Case(Fitting(data=lost), rules("corrupt_inputs"), "corrupt_inputs"),
    "a rare class": Case(
        Fitting(data=lambda: rare(0.3), last=dense(2, "softmax"), epochs=8),
        rules("class_imbalance", "classifier_confusion"),
        "class_imbalance",
    ),
    "numbers of classes": Case(
        regression(numbers, epochs=5), rules("loss_output_mismatch"), "loss_output_mismatch"
    ),
    "no softmax": Case(
        Fitting(last=dense(10, None)), rules("loss_output_mismatch"), "loss_output_mismatch"
    ),
    "numbers drawn at random instead of labels": Case(
        Fitting(
            data=drawn,
            hidden=[dense(64), dense(64)],
            rate=1e-3,
            loss="categorical_crossentropy",
            batch=32,
            compiled={"metrics": ["accuracy"]},
        ),
        rules("loss_output_mismatch"),
        "loss_output_mismatch",
    ),
    "a relu before values on both sides of zero": Case(
        regression(
            diabetes,
            hidden=[lambda: layers.Reshape((10, 1)), lambda: layers.GRU(8)],
            last=dense(1, "relu"),
        ),
        rules("loss_output_mismatch"),
        "loss_output_mismatch",
    ),
    "layers without activations": Case(
        Fitting(hidden=[dense(16, None)], last=dense(2, "softmax"), data=rings, rate=1e-2),
        rules("missing_activation"),
        "missing_activation",
    ),
    "a sum over the batch": Case(
        Fitting(loss=_SUM, optimizer=_SGD, rate=0.5), rules("initial_loss"), "loss_scale"
    ),
    "few rows": Case(
        Fitting(data=some, hidden=[dense(128)], rate=1e-2, batch=32, epochs=40, evaluate=True),
        rules("overfitting"),
        "overfitting",
    ),
    "epochs that add nothing": Case(
        regression(diabetes, hidden=[], rate=3e-2, batch=64, epochs=40, evaluate=True),
        rules("overfitting"),
    ),
    "one unit": Case(Fitting(hidden=[dense(1)], rate=1e-3), rules("underfitting"), "underfitting"),
    "batches that are too small": Case(
        Fitting(
            hidden=[dense(32, "tanh")],
            last=dense(10, None),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=_SGD,
            rate=3.0,
            batch=4,
            epochs=1,
        ),
        rules("learning_rate_too_high"),
    ),
    "a loss that overflows": Case(
        regression(diabetes, hidden=[], optimizer=_SGD, rate=10.0, epochs=10),
        rules("nonfinite"),
    ),
    "padding": Case(
        Fitting(hidden=embedded(), last=dense(2, "softmax"), data=lambda: sentences(0.9)),
        rules("token_ratio"),
    ),
    "indices that are scaled": Case(
        Fitting(hidden=embedded(), last=dense(2, "softmax"), data=lambda: typed(50.0), epochs=2),
        rules("corrupt_inputs"),
        "corrupt_inputs",
    ),
    "batches that overflow float16": Case(
        Fitting(
            hidden=half(),
            data=lambda: overflowing(4),
            optimizer=scaled,
            epochs=12,
            fit=_IN_ORDER,
        ),
        rules("mixed_precision"),
        "mixed_precision",
    ),
}

SOUND = {
    "evaluated rows in the order of their classes": Case(
        Fitting(data=evaluated_in_order, evaluate=True, epochs=4), rules("single_label")
    ),
    "a usual training": Case(
        Fitting(hidden=[*normed(0.9), dense(32, "tanh"), dense(32, "sigmoid")], evaluate=True),
        rules(
            *("stale_batch_norm", "corrupt_labels", "single_label", "data_leakage"),
            *("corrupt_inputs", "initial_loss", "loss_not_decreasing"),
            *("underfitting", "overfitting", "nonfinite"),
            *("target_leakage", "unbounded_loss"),
        ),
    ),
    "units that are often silent": Case(
        Fitting(hidden=[dense(bias_initializer=constant(-0.3))], rate=5e-3),
        rules("dying_relu", "no_signal", "bad_initialisation"),
    ),
    "large inputs that are learned": Case(
        Fitting(hidden=stack(1, "tanh"), data=lambda: digits(30.0), rate=1e-2),
        rules("unnormalised_inputs", "saturated_activation", "learning_rate_too_high"),
    ),
    "many layers that learn": Case(
        Fitting(hidden=stack(8, "tanh"), rate=1e-3),
        rules("vanishing_gradient", "no_signal", "identical_units"),
    ),
    "a weak penalty and a slow schedule": Case(
        Fitting(hidden=[dense(kernel_regularizer=_L2(1e-4)) for _ in range(2)], rate=halving(100)),
        rules(
            *("over_regularisation", "scheduler_not_stepped", "no_signal"),
            *("untrained_parameters", "learning_rate_too_low"),
        ),
    ),
    "a rare class that is learned": Case(
        Fitting(data=lambda: rare(5.0), last=dense(2, "softmax"), epochs=10, rate=1e-2),
        rules("class_imbalance", "classifier_confusion"),
    ),
    "targets as they should be": Case(
        regression(diabetes, batch=16, epochs=12),
        rules("unnormalised_targets", "loss_output_mismatch"),
    ),
    "logits that are said to be some": Case(
        Fitting(
            last=dense(10, "softmax"),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ),
        rules("loss_output_mismatch"),
    ),
    "layers without activations where a line is enough": Case(
        Fitting(
            hidden=[dense(16, None)], last=dense(2, "softmax"), data=lambda: rings(3.0), rate=1e-2
        ),
        rules("missing_activation"),
    ),
    "an overflow now and then": Case(
        Fitting(
            hidden=half(),
            data=lambda: overflowing(22),
            optimizer=scaled,
            optimizing={"dynamic_growth_steps": 20},
            fit=_IN_ORDER,
        ),
        rules("mixed_precision"),
    ),
    "indices that are whole floating-point numbers": Case(
        Fitting(hidden=embedded(), last=dense(2, "softmax"), data=lambda: typed(1.0)),
        rules("corrupt_inputs"),
    ),
    "some padding": Case(
        Fitting(hidden=embedded(), last=dense(2, "softmax"), data=lambda: sentences(0.3)),
        rules("token_ratio"),
    ),
}
