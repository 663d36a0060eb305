"""A script that fine-tunes the Keras network of a small pruning; see `tests.pruning.rounds`."""

from __future__ import annotations

import argparse

from tests.pruning.rounds import keras_functions
from vinedresser.pruning import fine_tuning


def main() -> None:
    """Fine-tune without a hook in the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    model = fine_tuning.load(keras_functions.network)
    keras_functions.fit(model, options.epochs)
    fine_tuning.save(model)


if __name__ == "__main__":
    main()
