"""Rows that a script prepares and then splits: some to train on, the others to evaluate with.

Shape legend: N rows, S training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from corpus.draw import Draw

__all__ = ["HeldOut", "held_out"]

_Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeldOut:
    """Rows of a training, as the script reads them, and as they are.

    Attributes:
        x, y: training rows [S, ...].
        x_val, y_val: what the script holds out [N - S, ...], prepared as the training rows.
        x_test, y_test: the same when the model is used: the inputs as the script prepares them,
            without what is known afterwards only, and the true answers.
    """

    x: Tensor
    y: Tensor
    x_val: Tensor
    y_val: Tensor
    x_test: Tensor
    y_test: Tensor


def held_out(
    draw: Draw,
    x: Tensor,
    y: Tensor,
    count: int,
    *,
    prepared: Mapping[str, _Rows] | None = None,
    training: Mapping[str, _Rows] | None = None,
) -> HeldOut:
    """Return rows with the drawn fault of their preparation, if there is one.

    Args:
        draw: choices of the training.
        x: inputs [N, ...].
        y: answers [N, ...].
        count: number of training rows, the first ones.
        prepared: faults of the preparation of all rows, with the rows that it leads to.
        training: faults of what is done with the training rows only.
    """
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    rows, labels = draw.by_fault(prepared or {}, _spoilt(draw, x, y, source))
    seen, known = draw.by_fault(training or {}, (rows, labels))
    seen, known = seen[:count], known[:count]
    if draw.has("duplicated_rows"):
        few = torch.arange(count) % max(8, count // 50)
        seen, known = seen[few], known[few]
    valid, valid_known = rows[count:], labels[count:]
    if draw.has("class_imbalance"):
        seen, known = _of_one_class(seen, known, source)
        valid, valid_known = _of_one_class(valid, valid_known, source)
    leaks, other_unit = draw.has("target_leak"), draw.has("unnormalised_targets")
    return HeldOut(
        *(seen, known, valid, valid_known),
        (x if leaks else rows)[count:],
        (labels if other_unit else y)[count:],
    )


def _spoilt(draw: Draw, x: Tensor, y: Tensor, source: torch.Generator) -> _Rows:
    """Return all rows with a fault that every table can have, if it is drawn."""
    if draw.has("shuffled_labels"):
        y = y[torch.randperm(len(y), generator=source)]
    if draw.has("misaligned_targets"):
        # One of two files has a header, or was filtered.
        y = y.roll(1, 0)
    if draw.has("constant_inputs"):
        x = torch.zeros_like(x)
    if draw.has("nan_inputs"):
        x = torch.where(torch.rand(x.shape, generator=source) < 0.002, torch.nan, x)
    if draw.has("label_noise"):
        wrong = torch.rand(y.shape, generator=source) < draw.amount.uniform(0.65, 0.85)
        y = torch.where(wrong, torch.randint(int(y.max()) + 1, y.shape, generator=source), y)
    if draw.has("off_by_one"):
        y = (y + 1) % (y.max() + 1)
    return x, y


def _of_one_class(x: Tensor, y: Tensor, source: torch.Generator) -> _Rows:
    """Return the rows of the most frequent class, and few others."""
    kept = (y == y.mode().values) | (torch.rand(len(y), generator=source) < 0.02)
    return x[kept], y[kept]
