"""Train a small network to tell the points of three spirals apart.

It needs only numpy. Replace it with your own training: `vinedresser` starts the script with the
hyperparameters as options. With a framework, the hook takes two lines and captures more:

    hook = Hook().watch(model, loss=loss_fn, optimizer=optimizer)  # PyTorch; Keras: watch(model)
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture import Hook

Array = NDArray[np.float64]
EPOCHS, STEPS, BATCH = 9, 150, 256


def spirals(draw: np.random.Generator, count: int) -> tuple[Array, NDArray[np.int64]]:
    """Return points, float64 [count, 2], and the spiral of each, int64 [count]."""
    labels = draw.integers(0, 3, count)
    along = draw.uniform(0.1, 1.0, count)
    angle = 4.0 * along + labels * 2 * np.pi / 3 + draw.normal(0, 0.15, count)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), labels


def probabilities(scores: Array) -> Array:
    """Return the softmax of each row; float64 [N, 3]."""
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


def cross_entropy(predicted: Array, labels: NDArray[np.int64]) -> float:
    """Return the mean loss.

    Args:
        predicted: probabilities, float64 [N, 3].
        labels: int64 [N].
    """
    return float(-np.log(predicted[np.arange(len(labels)), labels] + 1e-12).mean())


def main() -> None:
    """Train, and print the test accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--units", type=int, default=128)
    given = parser.parse_args()

    draw = np.random.default_rng(0)
    x_train, y_train = spirals(draw, 20_000)
    x_test, y_test = spirals(draw, 2000)
    weights = [draw.normal(0, 1.0, (2, given.units)), np.zeros(given.units)]
    weights += [draw.normal(0, given.units**-0.5, (given.units, 3)), np.zeros(3)]
    moving = [np.zeros_like(weight) for weight in weights]

    with Hook() as hook:
        for epoch in range(EPOCHS):
            for _ in range(STEPS):
                chosen = draw.integers(0, len(x_train), BATCH)
                x, y = x_train[chosen], y_train[chosen]
                hidden = np.tanh(x @ weights[0] + weights[1])
                predicted = probabilities(hidden @ weights[2] + weights[3])
                wrong = (predicted - np.eye(3)[y]) / BATCH
                back = wrong @ weights[2].T * (1 - hidden**2)
                gradients = [x.T @ back, back.sum(0), hidden.T @ wrong, wrong.sum(0)]
                for number, gradient in enumerate(gradients):
                    moving[number] = given.momentum * moving[number] - given.lr * gradient
                    weights[number] = weights[number] + moving[number]
                # Call this at the end of each step of any training loop.
                hook.step(inputs=x, labels=y, outputs=predicted, loss=cross_entropy(predicted, y))
            with hook.mode("eval"):
                hidden = np.tanh(x_test @ weights[0] + weights[1])
                predicted = probabilities(hidden @ weights[2] + weights[3])
                accuracy = float((predicted.argmax(axis=1) == y_test).mean())
                lost = cross_entropy(predicted, y_test)
                hook.step(
                    labels=y_test, outputs=predicted, loss=lost, metrics={"accuracy": accuracy}
                )
            print(f"epoch {epoch + 1}: accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
