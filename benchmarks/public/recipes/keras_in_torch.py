"""A Keras model in a training loop of PyTorch, after Keras's guide."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from torch import nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits


def main() -> None:
    keras.utils.set_random_seed(0)
    x, y = digits(24)
    x = x.permute(0, 2, 3, 1).contiguous()
    model = keras.Sequential(
        [
            keras.Input((24, 24, 1)),
            keras.layers.Conv2D(24, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2D(24, 3, activation="relu", strides=2),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total, journal = steps(300), Journal()
    for _ in range(total):
        rows = torch.randint(len(x), (32,))
        loss = criterion(model(x[rows], training=True), y[rows])
        model.zero_grad()
        loss.backward()
        optimizer.step()
        journal.step(loss=loss.item())
    journal.finish(one.detach().numpy() for one in model.state_dict().values())


if __name__ == "__main__":
    main()
