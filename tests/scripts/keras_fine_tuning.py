"""A script that fine-tunes the Keras network of a small pruning; see `tests.pruning.rounds`."""

from __future__ import annotations

import argparse

import keras

from tests.pruning.rounds import keras_functions
from vinedresser.pruning import fine_tuning


def main() -> None:
    """Fine-tune without a hook in the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    model = fine_tuning.load(keras_functions.network)
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss=keras_functions.loss())
    images, labels = keras_functions.data()
    model.fit(images, labels, epochs=options.epochs, batch_size=8, verbose=0)
    fine_tuning.save(model)


if __name__ == "__main__":
    main()
