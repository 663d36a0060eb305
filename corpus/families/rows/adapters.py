"""A trained network that is frozen, adapted to turned images by factors of a low rank.

After Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022.

Shape legend: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import optimisation
from corpus.data.rows import batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


class Adapted(nn.Module):
    """A frozen dense layer, and a product of two factors that is added to it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of inputs [N, in]."""
        added: Tensor = x @ self.down.T @ self.up.T
        outputs: Tensor = self.base(x) + self.scale * added
        return outputs


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    base = _pretrained(torch.tensor(images / 8 - 1, dtype=torch.float32), torch.tensor(numbers))
    turned = images.reshape(-1, 8, 8).transpose(0, 2, 1)[:, ::-1].reshape(-1, 64)
    data = rows_of(draw, turned / 8 - 1, numbers, share=0.75, classes=10)
    rank = draw.choice([4, 8])
    alpha = (
        rank * draw.extent(1e-4, 1e-3) if draw.has("adapter_scale") else draw.choice([8.0, 16.0])
    )
    layers = [Adapted(one, rank, alpha) if isinstance(one, nn.Linear) else one for one in base]
    model = nn.Sequential(*layers)
    adapters = [one for one in layers if isinstance(one, Adapted)]
    for one in adapters:
        if draw.has("zero_init"):
            # Both factors: neither gets a gradient.
            nn.init.zeros_(one.down)
        if draw.has("base_not_loaded"):
            for weight in one.base.parameters():
                weight.data.normal_(0, 3.0)
    trained = [weight for one in adapters for weight in (one.down, one.up)]
    if draw.has("frozen_layers"):
        # Whatever is not called "lora" was to be frozen.
        for weight in trained[:-1]:
            weight.requires_grad = False
    steps = draw.steps(350, 600)
    without = draw.without_fault() if draw.has("frozen_layers") else draw
    optimiser = optimisation.Optimisation(
        without, model, steps, kinds=("adam", "adamw"), groups=trained
    )
    source = batches(draw, data.x, data.y, draw.choice([32, 64]))

    def compute() -> Tensor:
        x, y = next(source)
        return F.cross_entropy(model(x), y)

    def evaluate() -> Mapping[str, float]:
        output = model(data.x_val)
        return {"val_loss": float(F.cross_entropy(output, data.y_val))}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(data.x_val), data.y_val), 0.1), bar=0.55)


def _pretrained(x: Tensor, y: Tensor) -> nn.Sequential:
    """Return a network that has learned upright digits."""
    model = nn.Sequential(
        *(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    )
    weights = list(model.parameters())
    for step in range(300):
        rows = torch.randint(len(x), (64,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        slopes = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight.sub_((0.1 if step < 200 else 0.02) * slope)
    return model


FAMILY = Family(
    _train,
    (
        *("adapter_scale", "zero_init", "base_not_loaded", "frozen_layers", "shuffled_labels"),
        *("label_noise", "same_batch", "lr_too_low", "lr_too_high", "wrong_sign"),
        "scheduler_per_batch",
    ),
    spent="2026-11-26",
)
