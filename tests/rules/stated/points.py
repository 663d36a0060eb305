"""A training of a small network with numpy: which points have a positive product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture import Hook, SaveConfig

__all__ = ["train"]

_EPOCHS, _STEPS, _ROWS = 6, 50, 64


def train(
    directory: Path,
    *,
    seed: int = 0,
    rate: float = 0.5,
    shuffled: bool = False,
    easy: bool = False,
    frozen: bool = False,
    epochs: int = _EPOCHS,
    expect: tuple[str, ...] = (),
) -> Path:
    """Train, and return the directory of the run.

    Args:
        directory: directory of the new run.
        seed: seed of the weights and batches; the data are always the same.
        rate: learning rate.
        shuffled: the labels of each batch are shuffled.
        easy: the labels are told by a single input.
        frozen: the first weights are not updated.
        epochs: number of epochs of 50 steps, each with an evaluation.
        expect: lines for `Hook.expect`.
    """
    data = np.random.default_rng(0).normal(size=(2000, 2))
    truth = (data[:, 0] if easy else data.prod(axis=1)) > 0
    random = np.random.default_rng(seed)
    first, second = random.normal(size=(3, 32)), random.normal(size=32) / 6
    collections = {
        "weights": SaveConfig(every=20, reductions=("l2",)),
        "labels": SaveConfig(every=20, tensor=True),
    }
    parameters = {"rate": rate, "seed": seed}
    with Hook(directory, collections=collections, parameters=parameters) as hook:
        hook.expect(*expect)
        for _ in range(epochs):
            for _ in range(_STEPS):
                rows = random.integers(0, 1500, _ROWS)
                x, y = np.c_[data[rows], np.ones(_ROWS)], truth[rows].astype(float)
                if shuffled:
                    y = random.permutation(y)
                hidden = np.maximum(x @ first, 0)
                output = _sigmoid(hidden @ second)
                wrong = (output - y) / _ROWS
                if not frozen:
                    first = first - rate * x.T @ (np.outer(wrong, second) * (hidden > 0))
                second = second - rate * hidden.T @ wrong
                hook.save("weights/first", first)
                hook.save("weights/second", second)
                loss = float(-np.log(np.where(y > 0, output, 1 - output) + 1e-9).mean())
                hook.step(inputs=x, labels=y, outputs=output, loss=loss)
            with hook.mode("eval"):
                x = np.c_[data[1500:], np.ones(500)]
                guessed = _sigmoid(np.maximum(x @ first, 0) @ second) > 0.5
                hook.step(metrics={"accuracy": float((guessed == truth[1500:]).mean())})
    return directory


def _sigmoid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-scores)))
