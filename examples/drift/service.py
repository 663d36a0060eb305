"""A classifier of images, as `monitor.toml` names its parts: how it is built, and its baseline.

The data are the 70,000 images of Debian's package dataset-fashion-mnist; FASHION_MNIST names
another folder with its files. Without them, scikit-learn's 1,797 handwritten digits are used,
enlarged to the same size.
"""

from __future__ import annotations

import gzip
import math
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

_FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
# Images that the model is not trained on: these are its baseline.
_HELD_OUT = 1_000
# Images that the demo's requests need.
_REQUESTS = 900
# Steps of training at least, however few images there are.
_STEPS = 300
_BATCH = 128


class Images(NamedTuple):
    """Images, float32 [N, 1, 28, 28], values from 0 to 1; labels, int64 [N]."""

    x: Tensor
    y: Tensor


@cache
def data() -> tuple[Images, Images, Images]:
    """Return images to train on, for the baseline, and for the requests of the service."""
    if Path(_FOLDER).is_dir():
        x, y = _read("train")
        requests = _read("t10k")
        x, y = x[:20_000], y[:20_000]
    else:
        digits = load_digits()
        x = F.interpolate(torch.tensor(digits.images / 16, dtype=torch.float32)[:, None], 28)
        y = torch.tensor(digits.target)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        x, y = x[order], y[order]
        x, y, requests = x[_REQUESTS:], y[_REQUESTS:], Images(x[:_REQUESTS], y[:_REQUESTS])
    held_out = min(_HELD_OUT, len(x) // 4)
    return Images(x[held_out:], y[held_out:]), Images(x[:held_out], y[:held_out]), requests


def build() -> nn.Sequential:
    """Return an untrained network for images [N, 1, 28, 28]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def baseline() -> tuple[Tensor, Tensor]:
    """Return inputs like those on which the model was validated, and their labels."""
    return data()[1]


def train(model: nn.Module) -> float:
    """Train a network for two epochs, or 300 steps if these are more; return its accuracy.

    The accuracy is that on the baseline.
    """
    images, held_out, _ = data()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    random = torch.Generator().manual_seed(0)
    epochs = max(2, math.ceil(_STEPS / math.ceil(len(images.x) / _BATCH)))
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(images.x), generator=random).split(_BATCH):
            loss = F.cross_entropy(model(images.x[chosen]), images.y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return float((model(held_out.x).argmax(1) == held_out.y).float().mean())


def _read(part: str) -> Images:
    """Read files of the IDX format: a header of 16 or 8 bytes, then one byte per value."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        with gzip.open(f"{_FOLDER}/{part}-{kind}-ubyte.gz") as file:
            arrays.append(np.frombuffer(file.read(), np.uint8, offset=header))
    x = torch.tensor(arrays[0].reshape(-1, 1, 28, 28) / 255, dtype=torch.float32)
    return Images(x, torch.tensor(arrays[1].astype(np.int64)))
