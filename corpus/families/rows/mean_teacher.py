"""Few labels and many rows without: a student agrees with the moving average of itself.

After Tarvainen and Valpola, "Mean teachers are better role models", NeurIPS 2017.

Shape legend: N rows, C classes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop
from corpus.optimisation import Optimisation


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    x = torch.tensor(images / 8 - 1, dtype=torch.float32)[order]
    y = torch.tensor(numbers)[order]
    known = draw.choice([100, 150, 250])
    labels, x_val, y_val = y[:known].clone(), x[1300:], y[1300:]
    if draw.has("off_by_one"):
        labels = (labels + 1) % 10
    if draw.has("label_noise"):
        wrong = torch.rand(known) < draw.amount.uniform(0.7, 0.9)
        labels = torch.where(wrong, torch.randint(10, (known,)), labels)
    student = networks.mlp(draw, 64, 10, depth=(1, 2), most=96)
    teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
    steps, size = draw.steps(300, 600), draw.choice([32, 64])
    optimiser = Optimisation(
        draw, student, steps, kinds=("adam", "adamw", "momentum"), accumulates=False
    )
    most, kept = draw.choice([0.3, 1.0, 3.0]), draw.choice([0.9, 0.95])
    taken = [0]

    def consistency(output: Tensor, other: Tensor) -> Tensor:
        return (output.softmax(1) - other.softmax(1)).square().sum(1).mean()

    def compute() -> Tensor:
        taken[0] += 1
        _follow(draw, teacher, student, kept)
        rows = torch.randint(known, (size,))
        others = x[torch.randint(1300, (size,))]
        output = student(x[rows])
        with torch.no_grad():
            target = teacher(others + 0.1 * torch.randn_like(others))
        ramp = most * min(1.0, taken[0] / (0.3 * steps))
        agreed = consistency(student(others + 0.1 * torch.randn_like(others)), target)
        return F.cross_entropy(output, labels[rows]) + ramp * agreed

    def evaluate() -> Mapping[str, float]:
        return {"ema_acc": accuracy(teacher.eval()(x_val), y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, student, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, teacher):
        return Ending(gained(accuracy(teacher(x_val), y_val), 0.1), bar=0.6)


@torch.no_grad()
def _follow(draw: Draw, teacher: nn.Module, student: nn.Module, kept: float) -> None:
    """Move the teacher to the student."""
    if draw.has("stale_average"):
        return
    if draw.has("average_reversed"):
        # The weights of the average are exchanged, and its target too: the student forgets.
        teacher, student, kept = student, teacher, 0.3
    means = (*teacher.parameters(), *(one for one in teacher.buffers() if one.is_floating_point()))
    news = (*student.parameters(), *(one for one in student.buffers() if one.is_floating_point()))
    for mean, new in zip(means, news, strict=True):
        mean.lerp_(new, 1 - kept)


FAMILY = Family(
    _train,
    (
        *("stale_average", "average_reversed", "off_by_one", "label_noise"),
        *("lr_too_low", "zero_init", "dead_relu", "scheduler_per_batch"),
    ),
    spent="2026-11-26",
)
