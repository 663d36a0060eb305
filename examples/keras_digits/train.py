"""Train a small Keras CNN on scikit-learn's handwritten digits (1,797 images of 8 by 8 pixels).

The two lines that add capture are marked.
"""

from __future__ import annotations

import argparse

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from vinedresser.capture import Hook


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train and evaluate."""
    options = parse()
    keras.utils.set_random_seed(options.seed)
    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        images.reshape(-1, 8, 8, 1) / 16,
        labels,
        test_size=0.22,
        random_state=0,
        stratify=labels,
    )
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(options.filters, 3, padding="same", activation=options.activation),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(options.dropout),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        keras.optimizers.SGD(options.lr, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    with Hook("runs/keras-digits") as hook:  # <- first line
        hook.watch(model)  # <- second line
        model.fit(
            x_train,
            y_train,
            batch_size=64,
            epochs=options.epochs,
            validation_data=(x_test, y_test),
            verbose=0,
        )


if __name__ == "__main__":
    main()
