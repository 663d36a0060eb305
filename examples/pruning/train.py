"""Train a slim ResNet-18 on Fashion-MNIST, and the functions to prune it.

The data are the 70,000 images of Debian's package dataset-fashion-mnist; FASHION_MNIST names
another folder with its files. Without them, scikit-learn's 1,797 handwritten digits are used,
enlarged to the same size.

Shape legend: N images, C channels, H and W height and width.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vinedresser.capture import Hook

_FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
_WIDTH, _BATCH = 16, 128


class Block(nn.Module):
    """A basic residual block: two 3 x 3 convolutions."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, inner, H, W] to [N, outer, H / stride, W / stride]."""
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def build() -> nn.Sequential:
    """Return an untrained ResNet-18 with a quarter of the usual width, for [N, 1, 28, 28]."""
    layers: list[nn.Module] = [
        nn.Conv2d(1, _WIDTH, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(_WIDTH),
        nn.ReLU(),
    ]
    inner = _WIDTH
    for stage in range(4):
        outer = _WIDTH * 2**stage
        layers += [Block(inner, outer, 1 if stage == 0 else 2), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 10))


class Images(NamedTuple):
    """Images, float32 [N, 1, 28, 28] with mean 0 and standard deviation 1; labels, int64 [N]."""

    x: Tensor
    y: Tensor


class Data(NamedTuple):
    """For training, for decisions such as when to stop pruning, and for the final figure."""

    training: Images
    validation: Images
    test: Images


@cache
def data() -> Data:
    """Return the images; a twelfth of those for training is held out for validation."""
    if Path(_FOLDER).is_dir():
        x, y = _read("train")
        test = _read("t10k")
    else:
        digits = load_digits()
        large = F.interpolate(torch.tensor(digits.images, dtype=torch.float32)[:, None], 28)
        labels = torch.tensor(digits.target)
        x, y, test = large[:1400], labels[:1400], Images(large[1400:], labels[1400:])
    mean, deviation = x.mean(), x.std()
    x = (x - mean) / deviation
    held_out = len(x) // 12
    return Data(
        Images(x[held_out:], y[held_out:]),
        Images(x[:held_out], y[:held_out]),
        Images((test.x - mean) / deviation, test.y),
    )


def _read(part: str) -> Images:
    """Read files of the IDX format: a header of 16 or 8 bytes, then one byte per value."""
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        with gzip.open(f"{_FOLDER}/{part}-{kind}-ubyte.gz") as file:
            arrays.append(np.frombuffer(file.read(), np.uint8, offset=header))
    images = torch.tensor(arrays[0], dtype=torch.float32).view(-1, 1, 28, 28)
    return Images(images, torch.tensor(arrays[1], dtype=torch.int64))


def example() -> Tensor:
    """Return images to trace and check the network with, float32 [8, 1, 28, 28]."""
    return data().validation.x[:8]


def batches(images: Images, seed: int) -> Iterator[Images]:
    """Yield shuffled batches of full size."""
    order = torch.randperm(len(images.x), generator=torch.Generator().manual_seed(seed))
    for chosen in order.split(_BATCH):
        if len(chosen) == _BATCH:
            yield Images(images.x[chosen], images.y[chosen])


def fit(model: nn.Module, hook: Hook | None, *, epochs: int, rate: float, seed: int = 0) -> None:
    """Train a model with SGD.

    Args:
        model: the network.
        hook: captures the training; None: nothing does.
        epochs: number of passes over the training images.
        rate: highest learning rate; it rises to it and falls to nearly 0.
        seed: seed of the order of the images.
    """
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    steps = epochs * (len(data().training.x) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    if hook is not None:
        hook.watch(model, loss_fn, optimizer)
    model.train()
    for epoch in range(epochs):
        for x, y in batches(data().training, seed + epoch):
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
            schedule.step()


def pretrain(model: nn.Module) -> None:
    """Train the unpruned network from fixed random weights."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.Linear):
            module.reset_parameters()
    fit(model, None, epochs=4, rate=0.2)


def train(model: nn.Module, hook: Hook, epochs: int = 1, rate: float = 0.05) -> None:
    """Fine-tune a pruned model."""
    fit(model, hook, epochs=epochs, rate=rate)


def accuracy(model: nn.Module, images: Images) -> float:
    """Return the share of images that a model classifies correctly; its mode is kept."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        right = sum(
            int((model(x).argmax(1) == y).sum())
            for x, y in zip(images.x.split(500), images.y.split(500), strict=True)
        )
    model.train(training)
    return right / len(images.x)


def evaluate(model: nn.Module) -> float:
    """Return the accuracy on the validation images, from 0 to 1."""
    return accuracy(model, data().validation)


def losses(model: nn.Module) -> Iterator[Tensor]:
    """Yield the losses of eight batches of training images."""
    for number, (x, y) in enumerate(batches(data().training, 0)):
        if number == 8:
            return
        yield F.cross_entropy(model(x), y)


def main() -> None:
    """Train the unpruned network and save its weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.2, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, default=Path("weights.safetensors"))
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = build()
    with Hook("runs/fashion") as hook:
        fit(model, hook, epochs=options.epochs, rate=options.rate, seed=options.seed)
    save_file(model.state_dict(), options.weights)
    print(f"accuracy {evaluate(model):.4f} on validation images")


if __name__ == "__main__":
    main()
