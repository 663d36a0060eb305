"""Train a linear model on scikit-learn's handwritten digits, batch by batch.

The lines that add capture are marked.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from vinedresser.capture import Hook

BATCHES = 22


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loss", default="log_loss")
    parser.add_argument("--schedule", default="constant")
    parser.add_argument("--eta0", type=float, default=0.01)
    parser.add_argument("--alpha", type=float, default=1e-4)
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train and evaluate."""
    options = parse()
    draw = np.random.default_rng(options.seed)
    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        images / 16, labels, test_size=0.25, random_state=0, stratify=labels
    )
    with Hook("runs/sgd") as hook:  # <- first line
        model = hook.sklearn(  # <- second line, around the model
            SGDClassifier(
                loss=options.loss,
                learning_rate=options.schedule,
                eta0=options.eta0,
                alpha=options.alpha,
                random_state=options.seed,
            ),
            validation=(x_test, y_test),
        )
        for _ in range(options.passes):
            for rows in np.array_split(draw.permutation(len(x_train)), BATCHES):
                model.partial_fit(x_train[rows], y_train[rows], classes=np.arange(10))


if __name__ == "__main__":
    main()
