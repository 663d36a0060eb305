"""How full a battery is at each moment, from current and voltage: a recurrent network of all steps.

After Chemali et al., "Long short-term memory networks for accurate state-of-charge estimation of
Li-ion batteries", IEEE Transactions on Industrial Electronics 2018; the drives are drawn.

Shape legend: N drives of T moments and F measures.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

_TIME, _FEATURES, _SEEN = 30, 3, 320


class Gauge(nn.Module):
    """The charge at each moment."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_FEATURES, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return charges [N, T] of measures float32 [N, T, F]."""
        charge: Tensor = self.out(self.lstm(x)[0]).squeeze(2)
        return charge


def _train(draw: Draw) -> Ending:
    rows = _drives(draw, 460)
    model = Gauge(draw.choice([20, 24]))
    blank(draw, model)
    length = plan(draw, _SEEN, [10, 16], (9, 12))
    rate = learning_rate(draw, 8e-3, 1.5e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def squares(found: Tensor, true: Tensor) -> Tensor:
        return (found - true).square().mean()

    loss_fn = draw.watch.loss(squares)

    def compute(picked: Tensor) -> Tensor:
        return loss_fn(model(rows.x[picked]), rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        return {"rmse": float((model(rows.x_val) - rows.y_val).square().mean().sqrt())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, clip=1.0, per_epoch=slower)
    model.eval()
    with torch.no_grad():
        left = (model(rows.x_test) - rows.y_test).square().sum()
    return Ending(float(1 - left / (rows.y_test - rows.y_test.mean()).square().sum()), bar=0.6)


def _drives(draw: Draw, count: int) -> HeldOut:
    """Return standardised measures float32 [count, T, F], and standardised charges [count, T]."""
    current = torch.randn(count, _TIME).cumsum(1) * 0.3 + 0.4 * torch.randn(count, _TIME)
    start = 0.7 * torch.randn(count, 1)
    charge = start - 0.25 * current.cumsum(1)
    warm = 0.5 * torch.randn(count, 1) + 0.3 * current.square().cumsum(1).sqrt()
    voltage = torch.tanh(0.4 * charge) - 0.5 * current - 0.1 * warm
    x = torch.stack([current, voltage, warm], 2)
    # The voltage of a battery hardly tells its charge.
    noise = torch.tensor([0.1, draw.between(0.5, 0.7), 0.3])
    x = x + noise * torch.randn(x.shape)
    x, y = (x - x.mean((0, 1))) / x.std((0, 1)), (charge - charge.mean()) / charge.std()
    raw = torch.tensor([2e3, 300, 8]) * x + torch.tensor([0.0, 3700, 298])
    return held_out(
        *(draw, x, y, _SEEN),
        # Milliampere, millivolt and kelvin.
        prepared={"unnormalised_inputs": (raw, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "constant_inputs", "misaligned_targets"),
        *("wrong_sign", "wrong_parameters", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
