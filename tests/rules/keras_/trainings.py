"""Small trainings with Keras, a faulty one and a sound one beside it for each rule that applies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import Run, open_run

__all__ = ["Data", "Fitting", "dense", "diabetes", "digits", "split", "stack", "waiting"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Rows to train on, and rows to evaluate on."""

    x: Array
    y: Array
    x_eval: Array
    y_eval: Array


def split(x: Array, y: Array, rows: int) -> Data:
    """Return shuffled rows, the first of them for training."""
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype("float32"), y[order]
    return Data(x[:rows], y[:rows], x[rows:], y[rows:])


def digits(scale: float = 1.0) -> Data:
    """Return digits of 8 x 8 pixels from 0 to 1, times a factor."""
    x, y = load_digits(return_X_y=True)
    return split(x / 16 * scale, y.astype("int64"), 1400)


def diabetes(scale: float = 1.0) -> Data:
    """Return ten measurements of 442 patients and how their illness went on, standardised."""
    x, y = load_diabetes(return_X_y=True)
    return split(x / x.std(0), scale * ((y - y.mean()) / y.std()).astype("float32"), 340)


def dense(units: int = 32, activation: str | None = "relu", **more: Any) -> Any:
    """Return a layer that is made when the model is."""
    return lambda: layers.Dense(units, activation=activation, **more)


def stack(count: int, activation: str, std: float | None = None) -> list[Any]:
    """Return equal layers, with initial weights of a standard deviation or as they are usual."""
    how = {} if std is None else {"kernel_initializer": keras.initializers.RandomNormal(0.0, std)}
    return [dense(32, activation, **how) for _ in range(count)]


@dataclass(frozen=True)
class Fitting:
    """A training by `fit`.

    Attributes:
        hidden: make the layers before the last.
        last: makes the last.
        data: makes the rows.
        rate: of the optimizer.
        optimizer: a class of Keras's.
        loss: as `compile` takes it.
        epochs: of 22 steps (of the digits).
        batch: rows of a step.
        evaluate: after each epoch.
        compiled: more for `compile`.
        fit: more for `fit`.
        optimizing: more for the optimizer.
        seed: of the weights and of the order of the rows.
    """

    hidden: list[Any] = field(default_factory=lambda: [dense()])
    last: Any = field(default_factory=lambda: dense(10, "softmax"))
    data: Callable[[], Data] = digits
    rate: Any = 3e-3
    optimizer: Any = keras.optimizers.Adam
    loss: Any = "sparse_categorical_crossentropy"
    epochs: int = 10
    batch: int = 64
    evaluate: bool = False
    compiled: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    optimizing: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def run(self, directory: Path) -> Run:
        """Train with what the default rules need captured; return the run."""
        keras.utils.set_random_seed(self.seed)
        data = self.data()
        model = keras.Sequential([one() for one in [*self.hidden, self.last]])
        optimizer = self.optimizer(self.rate, **self.optimizing)
        model.compile(optimizer, self.loss, **self.compiled)
        steps = -(-len(data.x) // self.batch) * self.epochs
        collections = capture_for(kind() for kind in RULES.values()).collections
        with Hook(directory, collections=collections, total_steps=steps) as hook:
            hook.watch(model)
            held = (data.x_eval, data.y_eval) if self.evaluate else None
            given = {"batch_size": self.batch, "epochs": self.epochs, "verbose": 0, **self.fit}
            model.fit(data.x, data.y, validation_data=held, **given)
        assert not [problem for problem in hook.problems if "failed" in problem]
        return open_run(directory)


def waiting(directory: Path, seconds: float) -> Run:
    """Train line by line, with a wait before each step.

    Args:
        directory: of the run.
        seconds: of waiting.
    """
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    data = digits()
    model = keras.Sequential([keras.Input((64,)), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1)
    collections = capture_for(kind() for kind in RULES.values()).collections
    with Hook(directory, collections=collections) as hook:
        hook.watch(model, loss, optimizer)
        for step in range(180):
            rows = slice(7 * step, 7 * step + 64)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                pass
            with tf.GradientTape() as tape:
                value = loss(data.y[rows], model(data.x[rows], training=True))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(value, variables), variables)
    return open_run(directory)
