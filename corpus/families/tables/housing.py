"""Prices of houses by their size, age and place: standardised targets, and SGD with momentum.

After Pace and Barry, "Sparse spatial autoregressions", Statistics and Probability Letters 1997,
whose table of districts many courses begin with.

Shape legend: N districts, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_FEATURES, _SEEN = 8, 1200


def _train(draw: Draw) -> Ending:
    raw, price = _districts(draw, 1800)
    mean, spread = raw[:_SEEN].mean(0), raw[:_SEEN].std(0)
    x = (raw - mean) / spread
    seen, known = _spoilt(draw, x[:_SEEN], price[:_SEEN])
    held = raw[_SEEN:] if draw.has("preprocessing_mismatch") else x[_SEEN:]
    width = draw.choice([48, 64])
    between = nn.Identity if draw.has("missing_activation") else nn.ReLU
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), between(), nn.Linear(width, width), between(), head)
    )
    if draw.has("wrong_output_activation"):
        # Prices are positive, but not these standardised ones.
        model.append(nn.ReLU())
    length = plan(draw, _SEEN, [24, 30], (12, 16))
    rate = learning_rate(draw, 0.01, 0.02)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, head), rate, 1e-4)
    steps = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    loss = draw.watch.loss(draw.choice([F.mse_loss, F.smooth_l1_loss]))

    # The sum over all rows, and not the mean of a batch.
    scale = float(_SEEN) if draw.has("loss_reduction") else 1.0

    def compute(rows: Tensor) -> Tensor:
        found, wanted = model(seen[rows]), known[rows]
        return scale * loss(found[:, 0] if draw.has("wrong_broadcast") else found, wanted)

    def evaluate() -> Mapping[str, float]:
        return {"r2": explained(model(held), price[_SEEN:])}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(evaluate()["r2"], bar=0.6)


def _spoilt(draw: Draw, x: Tensor, price: Tensor) -> tuple[Tensor, Tensor]:
    """Return the districts with the drawn fault, if there is one."""
    feet = torch.where(torch.rand(len(x), 1) < 0.5, 11.0, 1.0)
    missing = torch.rand_like(x) < 0.002
    shuffled, line = price[torch.randperm(len(x))], price.roll(1, 0)
    return draw.by_fault(
        {
            # Dollars.
            "unnormalised_targets": (x, 2e5 + 1e5 * price),
            "nan_inputs": (torch.where(missing, torch.nan, x), price),
            # Half of the offices write square feet, and not square metres.
            "units_mixed": (x * feet, price),
            "misaligned_targets": (x, line),
            "shuffled_labels": (x, shuffled),
            "constant_inputs": (torch.zeros_like(x), price),
        },
        (x, price),
    )


def _districts(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] in their own units, and standardised prices [count, 1]."""
    x = torch.randn(count, _FEATURES)
    price = 0.8 * x[:, 0] - 0.6 * x[:, 1].abs() + (x[:, 2] * x[:, 3]) + torch.sin(2 * x[:, 4])
    price = price + draw.between(0.1, 0.3) * torch.randn(count)
    units = torch.tensor([3.0, 12.0, 1.0, 2.0, 5.0, 0.3, 20.0, 900.0])
    return x * units + 4 * units, ((price - price.mean()) / price.std())[:, None]


FAMILY = Family(
    _train,
    (
        *(
            "unnormalised_targets",
            "wrong_broadcast",
            "wrong_output_activation",
            "missing_activation",
        ),
        *(
            "preprocessing_mismatch",
            "nan_inputs",
            "clip_too_small",
            "loss_reduction",
            "batch_too_large",
        ),
        *("scheduler_per_batch", "lr_too_high", "units_mixed", "misaligned_targets"),
    ),
    spent="2026-11-27",
)
