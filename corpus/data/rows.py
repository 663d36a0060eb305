"""Faults of rows and labels, and their batches.

Shape legend: N rows, F features (any number of axes), B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from corpus.draw import Draw

__all__ = ["INPUT_FAULTS", "LABEL_FAULTS", "TARGET_FAULTS", "Rows", "batches", "rows_of"]

Array = NDArray[Any]

# Faults of inputs that are numbers.
INPUT_FAULTS = (
    *("unnormalised_inputs", "constant_inputs", "nan_inputs", "duplicated_rows", "wrong_axis"),
    *("ruinous_augmentation", "same_batch"),
)
# Faults of class numbers.
LABEL_FAULTS = ("shuffled_labels", "label_noise", "off_by_one", "single_label", "class_imbalance")
# Faults of targets that are numbers.
TARGET_FAULTS = ("shuffled_labels", "unnormalised_targets")


@dataclass(frozen=True)
class Rows:
    """Rows of a training, as the script reads them.

    Attributes:
        x: float32 [N, *F].
        y: class numbers int64 [N], or float32 [N, K].
        x_val, y_val: the same of the evaluation, without faults that concern the training only.
    """

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor


def rows_of(draw: Draw, x: Array, y: Array, *, share: float = 0.75, classes: int = 0) -> Rows:
    """Return shuffled rows, with the drawn fault if there is one.

    Args:
        draw: choices of the training.
        x: inputs [N, *F], normalised.
        y: class numbers [N], or numbers [N, K].
        share: share of the training rows.
        classes: number of classes; 0 for targets that are numbers.
    """
    order = draw.numpy.permutation(len(x))
    x, y = x[order], y[order]
    count = max(1, int(share * len(x)))
    spoil = np.random.default_rng(draw.amount.getrandbits(32))
    if draw.has("unnormalised_inputs"):
        x = x * draw.extent(300, 30000) + draw.amount.choice([0, 1, 10]) * 1000
    if draw.has("constant_inputs"):
        x = np.broadcast_to(x.mean(0, keepdims=True), x.shape)
    if draw.has("nan_inputs"):
        x = np.where(spoil.random(x.shape) < 3 / x[0].size / 100, np.nan, x)
    if draw.has("wrong_axis"):
        # `reshape` in place of a transposition: each row has values of several.
        x = np.moveaxis(x, 0, -1).reshape(x.shape)
    train, labels = x[:count], y[:count]
    if draw.has("duplicated_rows"):
        kept = np.arange(count) % max(3, count // 200)
        train, labels = train[kept], labels[kept]
    if classes:
        train, labels = _spoilt_labels(draw, spoil, train, labels, classes)
    if draw.has("shuffled_labels"):
        labels = spoil.permutation(labels)
    if draw.has("unnormalised_targets"):
        labels = labels * draw.extent(1e3, 1e5) + draw.amount.choice([0, 1e4])
    parts = (train, labels, x[count:], y[count:])
    kinds = [torch.float32, torch.int64 if classes else torch.float32] * 2
    return Rows(*(torch.tensor(np.array(p), dtype=k) for p, k in zip(parts, kinds, strict=True)))


def _spoilt_labels(
    draw: Draw, spoil: np.random.Generator, x: Array, y: Array, classes: int
) -> tuple[Array, Array]:
    """Return training rows with the drawn fault of their labels, if there is one."""
    if draw.has("label_noise"):
        wrong = spoil.random(len(y)) < draw.amount.uniform(0.6, 0.9)
        y = np.where(wrong, spoil.integers(0, classes, len(y)), y)
    if draw.has("off_by_one"):
        y = (y + 1) % classes
    if draw.has("single_label"):
        y = np.full_like(y, y[0])
    if draw.has("class_imbalance"):
        common = np.bincount(y).argmax()
        kept = (y == common) | (spoil.random(len(y)) < draw.extent(0.003, 0.02))
        x, y = x[kept], y[kept]
    return x, y


def batches(
    draw: Draw, x: Tensor, y: Tensor, size: int, augment: Callable[[Tensor], Tensor] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield shuffled batches ([B, *F], [B, ...]) without end.

    Args:
        draw: choices of the training.
        x: inputs.
        y: labels.
        size: rows of a batch; the last one of an epoch is left out if it is smaller.
        augment: augmentation of a batch.
    """
    size = min(size, len(x))
    draw.epoch = len(x) // size
    while True:
        order = torch.randperm(len(x))
        for start in range(0, len(x) - size + 1, size):
            rows = order[start : start + size]
            if draw.has("same_batch"):
                # `next(iter(loader))` of a loader that does not shuffle.
                rows = torch.arange(min(size, 8))
            batch = x[rows]
            if draw.has("ruinous_augmentation"):
                batch = _ruined(batch, draw.amount.choice(["permute", "noise"]))
            elif augment is not None:
                batch = augment(batch)
            yield batch, y[rows]


def _ruined(batch: Tensor, how: str) -> Tensor:
    """Return a batch whose augmentation leaves nothing of its rows."""
    if how == "noise":
        return batch + 10 * torch.randn_like(batch) * batch.std().nan_to_num(1.0)
    flat = batch.flatten(1)
    places = torch.rand_like(flat).argsort(dim=1)
    return flat.gather(1, places).reshape(batch.shape)
