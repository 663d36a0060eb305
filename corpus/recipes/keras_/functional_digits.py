"""A functional Keras model of digits, trained by `fit`.

Settings: Keras' guide "The functional API": two layers of 64 with ReLU, scores without softmax,
RMSprop with its rate of 1e-3, a batch of 64, a fifth of the rows for validation. The images are
scikit-learn's, for more epochs.
"""

from __future__ import annotations

import numpy as np

from corpus.data.bundled import digits
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.keras_training import seeded_keras
from corpus.loop import gained

_EPOCHS, _ROWS, _BATCH = 12, 1500, 64


def _train(draw: Draw) -> Ending:
    keras = seeded_keras(draw)
    draw.watch.expect(_EPOCHS * -(-_ROWS * 4 // 5 // _BATCH))
    images, labels = (one.numpy() for one in digits(8))
    x, y = images.reshape(-1, 64), labels
    x_train, y_train, x_test, y_test = x[:_ROWS], y[:_ROWS], x[_ROWS:], y[_ROWS:]
    if draw.has("shuffled_labels"):
        # Images were shuffled before the split, labels were not.
        x_train = draw.numpy.permutation(x_train)
    inputs = keras.Input((64,), name="digits")
    inner = keras.layers.Dense(64, activation="relu", name="dense_1")(inputs)
    inner = keras.layers.Dense(64, activation="relu", name="dense_2")(inner)
    outputs = keras.layers.Dense(10, name="scores")(inner)
    model = keras.Model(inputs, outputs)
    optimizer = keras.optimizers.RMSprop(1.0 if draw.has("lr_too_high") else 1e-3)
    if draw.has("wrong_loss"):
        # Squared errors of one-hot classes would be right; here they are of the class numbers.
        loss: object = keras.losses.MeanSquaredError()
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    draw.watch.begin_keras(model)
    targets = y_train[:, None] if draw.has("wrong_loss") else y_train
    model.fit(
        *(x_train, targets),
        batch_size=_BATCH,
        epochs=_EPOCHS,
        validation_split=0.2,
        verbose=0,
    )
    reached = np.mean(model.predict(x_test, verbose=0).argmax(1) == y_test)
    return Ending(gained(float(reached), 0.1), bar=0.85)


FAMILY = Family(
    _train, ("shuffled_labels", "wrong_loss", "lr_too_high"), framework="keras", spent="2026-11-25"
)
