"""Exchange rates of the next days: a trend and what is left of it, each by one linear layer.

After Zeng et al., "Are transformers effective for time series forecasting?", AAAI 2023; the rates
are drawn.

Shape legend: N windows of T days of C currencies, and H days after them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_TIME, _AHEAD, _RATES, _SEEN = 36, 8, 4, 500


class DLinear(nn.Module):
    """The next values of each rate."""

    def __init__(self) -> None:
        super().__init__()
        self.seasonal = nn.Linear(_TIME, _AHEAD)
        self.trend = nn.Linear(_TIME, _AHEAD)

    def forward(self, x: Tensor) -> Tensor:
        """Return values [N, H, C] of windows float32 [N, T, C]."""
        x = x.transpose(1, 2)
        trend = F.avg_pool1d(F.pad(x, (4, 4), mode="replicate"), 9, 1)
        found: Tensor = self.seasonal(x - trend) + self.trend(trend)
        return found.transpose(1, 2)


def _train(draw: Draw) -> Ending:
    rows = _windows(draw, 720)
    model = DLinear()
    spoil(draw, model)
    length = plan(draw, len(rows.x), [16, 20], (10, 14))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, draw.choice(["adam", "adamw"]), list(model.parameters()), rate)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    loss_fn = draw.watch.loss(F.l1_loss if draw.chance(0.5) else F.mse_loss)

    def compute(picked: Tensor) -> Tensor:
        return loss_fn(model(rows.x[picked]), rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        error = model(rows.x_val) - rows.y_val
        return {"mse": float(error.square().mean()), "mae": float(error.abs().mean())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=1, per_epoch=scheduler)
    model.eval()
    with torch.no_grad():
        found = model(rows.x_test)
    return Ending(explained(found.flatten(1), rows.y_test.flatten(1)), bar=0.5)


def _windows(draw: Draw, count: int) -> HeldOut:
    """Return windows float32 [count, T, C] and what follows [count, H, C], standardised."""
    day = torch.arange(_TIME + _AHEAD)[None, :, None]
    phase, slow = 6.28 * torch.rand(count, 1, _RATES), 6.28 * torch.rand(count, 1, _RATES)
    rates = (0.5 * day + phase).sin() + 1.5 * (0.08 * day + slow).sin()
    rates = rates + draw.between(0.2, 0.35) * torch.randn(rates.shape)
    rates = rates + 0.5 * torch.randn(count, 1, _RATES)
    rates = (rates - rates.mean()) / rates.std()
    x, y = rates[:, :_TIME], rates[:, _TIME:]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Rupiahs of a dollar, and yen.
            "unnormalised_inputs": (15000 + 3000 * x, y),
            "unnormalised_targets": (x, 15000 + 3000 * y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "shuffled_labels", "misaligned_targets"),
        *("nan_inputs", "wrong_sign", "missing_step", "scheduler_per_batch", "adam_epsilon"),
        "lr_too_low",
    ),
)
