"""Values that sensors did not report: a recurrent network of both directions fills the gaps.

After Cao et al., "BRITS: bidirectional recurrent imputation for time series", NeurIPS 2018; the
sensors are drawn.

Shape legend: N days of T times, S sensors.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import blank

_TIME, _SENSORS, _SEEN = 16, 5, 500


class Filler(nn.Module):
    """All values, from those that are there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gru = nn.GRU(2 * _SENSORS, size, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * size, _SENSORS)

    def forward(self, values: Tensor, there: Tensor) -> Tensor:
        """Return values [N, T, S] of those that are there, 0 elsewhere, and 1 where they are."""
        found: Tensor = self.out(self.gru(torch.cat([values, there], 2))[0])
        return found


def _train(draw: Draw) -> Ending:
    days = _days(draw, 750)
    given = _prepared(draw, days)
    model = Filler(draw.choice([24, 32]))
    blank(draw, model)
    length = plan(draw, _SEEN, [12, 16], (10, 13))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)

    def masked_error(found: Tensor, values: Tensor, counted: Tensor) -> Tensor:
        return ((found - values).square() * counted).sum() / counted.sum()

    loss_fn = draw.watch.loss(masked_error)

    def compute(batch: Tensor) -> Tensor:
        values = given[batch]
        there = (torch.rand(values.shape) < 0.7).float()
        shown = values if draw.has("target_leak") else values * there
        # Only hidden values count: the visible ones are copied.
        counted = there if draw.has("mask_inverted") else 1 - there
        return loss_fn(model(shown, there), values, counted)

    held = (torch.rand(days[_SEEN:].shape) < 0.7).float()

    def evaluate() -> Mapping[str, float]:
        values = given[_SEEN:]
        shown = values if draw.has("target_leak") else values * held
        counted = held if draw.has("mask_inverted") else 1 - held
        return {"val_mse": float(masked_error(model(shown, held), values, counted))}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, clip=1.0)
    model.eval()
    with torch.no_grad():
        values = days[_SEEN:]
        shown, scale = values * held, 1.0
        if draw.has("unnormalised_inputs"):
            shown, scale = (_unit(values) * held), 50.0
        found = model(shown, held)
        if draw.has("unnormalised_inputs"):
            found = (found - 900) / scale
        left = masked_error(found, values, 1 - held)
        return Ending(float(1 - left / masked_error(0 * values, values, 1 - held)), bar=0.55)


def _unit(days: Tensor) -> Tensor:
    """Return values in the unit of the sensors, hectopascals."""
    return 900 + 50 * days


def _prepared(draw: Draw, days: Tensor) -> Tensor:
    """Return days as the script prepares them, with the drawn fault if there is one."""
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    broken = torch.rand(days.shape, generator=source) < 0.002
    return draw.by_fault(
        {
            "unnormalised_inputs": _unit(days),
            # What is missing already is not a number.
            "nan_inputs": torch.where(broken, torch.nan, days),
            "constant_inputs": torch.zeros_like(days),
        },
        days,
    )


def _days(draw: Draw, count: int) -> Tensor:
    """Return standardised values float32 [count, T, S]."""
    time = torch.arange(_TIME)[:, None]
    phase, pace = 6.28 * torch.rand(count, 1, 1), 0.3 + 0.3 * torch.rand(count, 1, 1)
    lag = torch.tensor(draw.numpy.uniform(0, 2, _SENSORS), dtype=torch.float32)
    level = 0.5 * torch.randn(count, 1, 1)
    days = torch.sin(pace * time - lag + phase) + level
    days = days + draw.between(0.1, 0.2) * torch.randn(days.shape)
    return (days - days.mean()) / days.std()


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "nan_inputs", "mask_inverted", "target_leak"),
        *("zero_init", "wrong_sign", "wrong_parameters", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
