"""A student that learns from a teacher's outputs and from labels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    data = rows.rows_of(draw, (images - images.mean()) / images.std(), numbers, classes=10)
    teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    steps = draw.steps(300, 1000)
    if not draw.has("stale_target"):
        _teach(teacher, data)
    model = networks.mlp(draw, 64, 10, depth=(1, 2), most=64)
    optimiser = optimisation.Optimisation(draw, model, steps)
    warmth, share = draw.choice([2.0, 4.0]), draw.choice([0.5, 0.9])
    sign = -1.0 if draw.has("term_wrong_sign") else 1.0
    size = draw.choice([32, 64])
    source = rows.batches(draw, data.x, data.y, size)

    def loss(output: Tensor, soft: Tensor, y: Tensor) -> Tensor:
        if draw.has("double_softmax"):
            output = output.softmax(1)
        dim = 0 if draw.has("softmax_wrong_axis") else 1
        learned = F.log_softmax(output / warmth, dim)
        apart = F.kl_div(learned, F.softmax(soft / warmth, dim), reduction="batchmean")
        return sign * share * warmth**2 * apart + (1 - share) * F.cross_entropy(output, y)

    watched = draw.watch.loss(loss)

    def compute() -> Tensor:
        x, y = next(source)
        with torch.no_grad():
            soft = teacher(x)
        return watched(model(x), soft, y)

    def evaluate() -> Mapping[str, float]:
        return {"accuracy": accuracy(model(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(data.x_val), data.y_val), 0.1), bar=0.8, margin=0.1)


def _teach(teacher: nn.Module, data: rows.Rows) -> None:
    """Fit the teacher with LBFGS, on all rows at once."""
    optimizer = torch.optim.LBFGS(teacher.parameters(), lr=0.5, max_iter=10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(teacher(data.x), data.y)
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(closure)
    teacher.eval().requires_grad_(requires_grad=False)


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *networks.MLP_FAULTS,
        *("term_wrong_sign", "double_softmax", "softmax_wrong_axis", "stale_target"),
        *("unnormalised_inputs", "ruinous_augmentation", "same_batch"),
    ),
    spent="2026-11-23",
)
