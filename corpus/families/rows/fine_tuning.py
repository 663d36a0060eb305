"""A pretrained network with a new head, frozen or not, and a moving average of its weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.data import rows
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    x = (images - images.mean()) / images.std()
    old = numbers < 5
    backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    _pretrain(backbone, torch.tensor(x[old], dtype=torch.float32), torch.tensor(numbers[old]))
    data = rows.rows_of(draw, x[~old], numbers[~old] - 5, classes=5)
    model = nn.Sequential(backbone, nn.Linear(64, 5))
    networks.spoil(draw, model)
    frozen = draw.chance(0.5)
    if frozen:
        backbone.requires_grad_(requires_grad=False)
    steps = draw.steps(200, 900)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimiser = optimisation.Optimisation(draw, model, steps, groups=trained)
    loss = losses.class_loss(draw)
    source = rows.batches(draw, data.x, data.y, draw.choice([16, 32, 64]))
    averages, kept = draw.concerns("stale_average") or draw.chance(0.5), 0.98
    average = copy.deepcopy(model)

    def compute() -> Tensor:
        batch, wanted = next(source)
        if averages and not draw.has("stale_average"):
            _follow(average, model, kept)
        return loss(model(batch), wanted)

    def used() -> nn.Module:
        return average.eval() if averages else model

    def evaluate() -> Mapping[str, float]:
        return {"accuracy": accuracy(used()(data.x_val), data.y_val)}

    chosen = evaluate if draw.chance(0.8) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(accuracy(used()(data.x_val), data.y_val), 0.2), bar=0.7)


def _pretrain(backbone: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train on the first five digits, without an optimizer of torch: another program did it."""
    model = nn.Sequential(backbone, nn.Linear(64, 5))
    weights = list(model.parameters())
    for _ in range(120):
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for one, gradient in zip(weights, gradients, strict=True):
                one.sub_(gradient, alpha=0.3)


@torch.no_grad()
def _follow(average: nn.Module, model: nn.Module, kept: float) -> None:
    for mean, now in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(now, 1 - kept)


FAMILY = Family(
    _train,
    (
        *optimisation.FAULTS,
        *("zero_init", "large_init", "stale_average", "unnormalised_inputs", "wrong_axis"),
        *("ruinous_augmentation", "same_batch"),
        *losses.CLASS_FAULTS,
        *rows.LABEL_FAULTS,
    ),
    spent="2026-11-23",
)
