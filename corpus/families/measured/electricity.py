"""How much electricity a town uses next day, by blocks that explain what others left over.

After Oreshkin et al., "N-BEATS: neural basis expansion analysis for interpretable time series
forecasting", ICLR 2020, with absolute errors by hand; the town is drawn.

Shape legend: N windows, T times that are known, H times that come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_KNOWN, _AHEAD, _SEEN = 28, 7, 900


class Block(nn.Module):
    """What it explains of the past, and adds to the future."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(_KNOWN, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        )
        self.ends = nn.Linear(width, _KNOWN + _AHEAD)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both, [N, T] and [N, H], of what is left [N, T]."""
        past, future = self.ends(self.body(x)).split([_KNOWN, _AHEAD], 1)
        return past, future


class Stack(nn.Module):
    """Blocks, one after the other; a list of python's own does not register them."""

    def __init__(self, width: int, *, registers: bool) -> None:
        super().__init__()
        blocks = [Block(width) for _ in range(3)]
        self.blocks = nn.ModuleList(blocks) if registers else blocks
        self.scale = nn.Parameter(torch.ones(_AHEAD))

    def forward(self, x: Tensor) -> Tensor:
        """Return values [N, H] that come after values [N, T]."""
        total = torch.zeros(len(x), _AHEAD)
        for block in self.blocks:
            past, future = block(x)
            x, total = x - past, total + future
        return total * self.scale


def _train(draw: Draw) -> Ending:
    x, y = _town(draw, 1300)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = Stack(draw.choice([48, 64]), registers=not draw.has("missing_parameters"))
    length = plan(draw, _SEEN, [30, 45], (11, 15))
    rate = learning_rate(draw, 1e-3, 2e-3)
    weights = trained(draw, model, model)
    optimizer = optimizer_of(draw, "adamw", weights, rate, 1e-2)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.6)

    def compute(rows: Tensor) -> Tensor:
        wanted = known[rows]
        error = torch.abs(model(seen[rows]) - wanted)
        if draw.has("percentage_of_zero"):
            # Percentages of what is often nearly nothing.
            error = error / wanted.abs().clamp(min=1e-6)
        return torch.mean(error)

    def evaluate() -> Mapping[str, float]:
        return {"mae": float((model(x[_SEEN:]) - y[_SEEN:]).abs().mean())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3, per_epoch=decay)
    model.eval()
    with torch.no_grad():
        usual = float((y[_SEEN:] - y[:_SEEN].median()).abs().mean())
        return Ending(1 - evaluate()["mae"] / usual, bar=0.45)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows with the drawn fault, if there is one."""
    few = torch.arange(len(x)) % 14
    return draw.by_fault(
        {
            # The windows overlap so much that they are nearly all the same.
            "duplicated_rows": (x[few], y[few]),
            "wrong_order": (x, y.flip(1)),
            "wrong_shift": (x, torch.cat([x[:, -_AHEAD:]], 1)),
            # Kilowatts and megawatts.
            "unnormalised_targets": (x, 5e4 * y + 2e5),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
        (x, y),
    )


def _town(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return windows float32 [count, T] and what comes after them [count, H]."""
    time = torch.arange(_KNOWN + _AHEAD)
    week = torch.randn(2, 7)
    kind = torch.rand(count, 1)
    day = torch.randint(7, (count, 1))
    pattern = kind * week[0][(time + day) % 7] + (1 - kind) * week[1][(time + day) % 7]
    swing = torch.sin(2 * math.pi * time / 19 + 6 * torch.rand(count, 1))
    # What has risen falls again beyond a level.
    bend = (1.5 * swing).tanh() * (0.5 + torch.rand(count, 1))
    noise = draw.between(0.08, 0.15) * torch.randn(count, len(time))
    values = pattern + bend + noise
    return values[:, :_KNOWN], values[:, _KNOWN:]


FAMILY = Family(
    _train,
    (
        *("missing_parameters", "percentage_of_zero", "wrong_order", "wrong_shift"),
        *("duplicated_rows", "unnormalised_targets", "wrong_axis", "scheduler_per_batch"),
        *("weight_decay_too_high", "adam_betas", "lr_too_high", "missing_step"),
    ),
    spent="2026-11-27",
)
