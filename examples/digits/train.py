"""Train a small network on scikit-learn's handwritten digits (1,797 images of 8 by 8 pixels).

The two lines that add capture are marked. The options allow a healthy training and several classic
mistakes.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from vinedresser.capture import Hook

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


class NaiveCrossEntropy(nn.Module):
    """Textbook cross-entropy, which computes log(0) when a probability underflows."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss, float32 scalar; logits float32 [N, C], labels int64 [N]."""
        probabilities = torch.exp(logits) / torch.exp(logits).sum(dim=1, keepdim=True)
        return -torch.log(probabilities[torch.arange(len(labels)), labels]).mean()


def build_model(kind: str, depth: int, activation: str) -> nn.Module:
    """Return a CNN, or an MLP with ``depth`` hidden layers of 64 units."""
    act = ACTIVATIONS[activation]
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            act(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            act(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 4, 10),
        )
    hidden = [layer for _ in range(depth - 1) for layer in (nn.Linear(64, 64), act())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), act(), *hidden, nn.Linear(64, 10))


def load(subset: int | None, scale: float, noise: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, then test images and labels.

    Args:
        subset: number of training images; None: all.
        scale: divisor of the pixels, which range from 0 to 16.
        noise: share of training labels replaced by random ones.

    Returns:
        Images float32 [N, 1, 8, 8] and labels int64 [N], for training and for testing.
    """
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(
        images / scale, labels, test_size=0.25, random_state=0, stratify=labels
    )
    x_train, x_test = (
        torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) for part in split[:2]
    )
    y_train, y_test = (torch.tensor(part) for part in split[2:])
    x_train, y_train = x_train[:subset], y_train[:subset]
    if not noise:
        return x_train, y_train, x_test, y_test
    wrong = torch.rand(len(y_train)) < noise
    y_train[wrong] = torch.randint(0, 10, (int(wrong.sum()),))
    return x_train, y_train, x_test, y_test


def batches(count: int, size: int) -> Iterator[Tensor]:
    """Yield batches of shuffled indices, int64 [size], without end."""
    while True:
        yield from torch.randperm(count).split(size)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("cnn", "mlp"), default="cnn")
    parser.add_argument("--depth", type=int, default=2, help="hidden layers of the MLP")
    parser.add_argument("--activation", choices=tuple(ACTIVATIONS), default="relu")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--subset", type=int, help="number of training images")
    parser.add_argument("--noise", type=float, default=0.0, help="share of random labels")
    parser.add_argument("--scale", type=float, default=16.0, help="divisor of the pixels")
    parser.add_argument(
        "--naive-loss", action="store_true", help="cross-entropy without log-sum-exp"
    )
    parser.add_argument("--evaluate-every", type=int, default=50, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train and evaluate."""
    options = parse()
    torch.manual_seed(options.seed)
    x_train, y_train, x_test, y_test = load(options.subset, options.scale, options.noise)
    model = build_model(options.model, options.depth, options.activation)
    loss_fn: nn.Module = NaiveCrossEntropy() if options.naive_loss else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)

    hook = Hook("runs/digits")  # <- the first line
    hook.watch(model, loss=loss_fn, optimizer=optimizer)  # <- the second

    order = itertools.islice(batches(len(x_train), options.batch), options.steps)
    for step, chosen in enumerate(order, start=1):
        model.train()
        optimizer.zero_grad()
        loss_fn(model(x_train[chosen]), y_train[chosen]).backward()
        optimizer.step()
        if step % options.evaluate_every == 0 or step == options.steps:
            model.eval()
            with torch.no_grad(), hook.mode("eval"):
                logits = model(x_test)
                loss = loss_fn(logits, y_test)
                accuracy = (logits.argmax(dim=1) == y_test).float().mean()
                hook.metric("accuracy", accuracy)
            print(f"step {step}: test loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
