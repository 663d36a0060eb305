"""Small Keras trainings of every kind.

The importer may select a backend before; the default is TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers, ops

from vinedresser.capture import SaveConfig

__all__ = [
    "KINDS",
    "ZOO",
    "Attach",
    "Residual",
    "Transformer",
    "classifier",
    "cnn",
    "everything",
    "final_bits",
    "images",
    "seeded",
    "sentences",
]

KINDS = (
    "losses",
    "metrics",
    "weights",
    "biases",
    "gradients",
    "updates",
    "inputs",
    "outputs",
    "buffers",
    "optimizer_state",
    "attention",
    "labels",
    "predictions",
)

# Called with the model before its training and with keyword arguments for `Hook.watch`.
Attach = Callable[..., Any]
_FIT = {"batch_size": 8, "verbose": 0}


def everything(every: int = 1, **more: Any) -> dict[str, SaveConfig]:
    """Return collections that save all tensors."""
    return {name: SaveConfig(every=every, **more) for name in KINDS}


def seeded(make: Callable[..., Any], *args: Any) -> Any:
    """Call a function with fixed seeds and return its result."""
    keras.utils.set_random_seed(3)
    return make(*args)


def images(count: int = 28) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 8, 8, 1)).astype("float32"), rng.integers(0, 4, count)


def sentences(count: int = 16) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 20, (count, 6)), rng.integers(0, 4, count)


def cnn() -> Any:
    """Return a CNN with stateful layers: normalization, dropout."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(4, 3),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(4),
        ]
    )


class Residual(keras.Model):  # type: ignore[misc]
    """A subclassed model that is built late, nests a model and calls a layer three times."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([layers.Flatten(), layers.Dense(6, activation="tanh")])
        self.mix = layers.Dense(6)
        self.drop = layers.Dropout(0.2)
        self.blocks = [layers.Dense(6), layers.Dense(4, name="head")]

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.encoder(x)
        for _ in range(3):
            x = x + self.mix(x)
        x = ops.relu(self.blocks[0](self.drop(x, training=training)))
        return self.blocks[1](x)


class Custom(Residual):
    """A model with a custom loss and its own loss tracker."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = keras.metrics.Mean(name="loss")

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        return ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True))


class Transformer(keras.Model):  # type: ignore[misc]
    """Embedding (sparse gradients) and attention by several kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = layers.Embedding(20, 8)
        self.fused = layers.MultiHeadAttention(2, 4)
        self.dropped = layers.MultiHeadAttention(2, 4, dropout=0.1)
        self.grouped = layers.GroupQueryAttention(4, 4, 2)
        self.norm = layers.LayerNormalization()
        self.head = layers.Dense(4)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.embedding(x)
        x = x + self.fused(x, x, use_causal_mask=True)
        x = x + self.dropped(x, x, training=training)
        x = self.norm(x + self.grouped(x, x))
        return self.head(ops.mean(x, axis=1))


def classifier(model: Any, **more: Any) -> Any:
    """Return a model compiled with Adam, cross-entropy and accuracy by default."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    given = {"optimizer": keras.optimizers.Adam(0.01), "loss": loss, "metrics": ["accuracy"]}
    model.compile(**given | more)
    return model


def _fit(attach: Attach, model: Any, data: Any, **more: Any) -> Any:
    attach(model)
    model.fit(*data, **_FIT | more)
    return model


def _cnn(attach: Attach) -> Any:
    x, y = images()
    model = _fit(attach, classifier(cnn()), (x, y), epochs=2, validation_data=(x[:12], y[:12]))
    model.evaluate(x[:9], y[:9], verbose=0, batch_size=4)
    model.predict(x[:9], verbose=0, batch_size=4)
    return model


def _late(attach: Attach) -> Any:
    return _fit(attach, classifier(Residual()), images(), epochs=2)


def _custom(attach: Attach) -> Any:
    return _fit(attach, classifier(Custom(), loss=None), images())


def _several(attach: Attach) -> Any:
    left, right = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    both = layers.Concatenate()([layers.Dense(4, activation="gelu")(left), right])
    score = layers.Dense(1, name="score")(both)
    kind = layers.Dense(3, activation="softmax", name="kind")(ops.relu(both))
    model = keras.Model({"left": left, "right": right}, {"score": score, "kind": kind})
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        {"score": "mse", "kind": "sparse_categorical_crossentropy"},
        loss_weights={"score": 0.5, "kind": 1.0},
        metrics={"kind": ["accuracy"]},
    )
    rng = np.random.default_rng(4)
    x = {"left": rng.normal(size=(20, 3)), "right": rng.normal(size=(20, 2))}
    y = {"score": rng.normal(size=(20, 1)), "kind": rng.integers(0, 3, 20)}
    weights = {"score": rng.uniform(size=20), "kind": rng.uniform(size=20)}
    return _fit(attach, model, (x, y), sample_weight=weights)


def _attention(attach: Attach) -> Any:
    model, (x, y) = Transformer(), sentences()
    # Built before it is watched, which saves a trace; `late` covers the other case.
    model(x[:1])
    # Adam's update of each of its variables would take longer to trace than the model.
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    return _fit(attach, classifier(model, optimizer=optimizer), (x, y), epochs=2)


def _recurrent(attach: Attach) -> Any:
    model = keras.Sequential([layers.Embedding(20, 4), layers.LSTM(5), layers.Dense(4)])
    return _fit(attach, classifier(model), sentences())


def _accumulated(attach: Attach) -> Any:
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.1)
    return _fit(attach, classifier(cnn(), optimizer=optimizer), images(), epochs=2)


def _policy(name: str, attach: Attach) -> Any:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        # The scaled gradients of the first steps overflow.
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        if name == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**26)
        return _fit(attach, classifier(cnn(), optimizer=optimizer), images(), epochs=3)
    finally:
        keras.config.set_dtype_policy(before)


def _half(attach: Attach) -> Any:
    return _policy("mixed_float16", attach)


def _brain(attach: Attach) -> Any:
    return _policy("mixed_bfloat16", attach)


def _batches(attach: Attach) -> Any:
    model, (x, y) = classifier(cnn()), images()
    attach(model)
    for start in range(0, 24, 8):
        model.train_on_batch(x[start : start + 8], y[start : start + 8])
    model.test_on_batch(x[:8], y[:8])
    model.train_on_batch(x[:4], y[:4], class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0})
    return model


def _schedule(attach: Attach) -> Any:
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01, use_ema=True)
    return _fit(attach, classifier(cnn(), optimizer=optimizer), images(), epochs=2)


def _again(attach: Attach) -> Any:
    # Compiled again with a frozen layer.
    model = _fit(attach, classifier(cnn()), images())
    model.layers[0].trainable = False
    classifier(model, optimizer=keras.optimizers.SGD(0.1))
    model.fit(*images(), **_FIT)
    return model


# Each training returns its model.
ZOO: dict[str, Callable[[Attach], Any]] = {
    "cnn": _cnn,
    "late": _late,
    "custom": _custom,
    "several": _several,
    "attention": _attention,
    "recurrent": _recurrent,
    "accumulated": _accumulated,
    "half": _half,
    "brain": _brain,
    "batches": _batches,
    "schedule": _schedule,
    "again": _again,
}


def final_bits(training: Callable[[Attach], Any], attach: Attach | None = None) -> list[bytes]:
    """Return the bits of the final weights, buffers, seeds and optimizer state."""
    model = seeded(training, attach or (lambda *_args, **_kwargs: None))
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else [])]
    return [ops.convert_to_numpy(variable).tobytes() for variable in variables]
