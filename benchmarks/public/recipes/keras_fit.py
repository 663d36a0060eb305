"""A convolutional network of Keras for digits, by `compile` and `fit`."""

from __future__ import annotations

from typing import Any

import keras
from sklearn.datasets import load_digits

from benchmarks.public.recipes.journal import Journal, steps


class Steps(keras.callbacks.Callback):  # type: ignore[misc]
    """Times each step and notes the loss of each epoch's evaluation."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._journal.step()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._journal.evaluated((logs or {})["val_loss"])


def main() -> None:
    keras.utils.set_random_seed(1)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32").reshape(-1, 8, 8, 1).repeat(3, axis=1).repeat(3, axis=2)
    targets = keras.utils.to_categorical(y, 10)
    model = keras.Sequential(
        [
            keras.Input((24, 24, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    total, journal = steps(322), Journal()
    model.fit(
        x[:1472],
        targets[:1472],
        batch_size=32,
        epochs=max(total // 46, 1),
        validation_data=(x[1472:], targets[1472:]),
        callbacks=[Steps(journal)],
        verbose=0,
    )
    journal.finish(model.get_weights())


if __name__ == "__main__":
    main()
