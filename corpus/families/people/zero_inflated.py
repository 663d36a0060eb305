"""How many fish groups of visitors caught, of whom some did not fish at all: two outputs.

After Lambert, "Zero-inflated Poisson regression", Technometrics 1992, by hand.

Shape legend: N groups, F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_FEATURES, _SEEN = 6, 1500


class Catch(nn.Module):
    """Logits [N] of not fishing, and logarithms [N] of the expected number otherwise."""

    def __init__(self, width: int, *, bounded: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(_FEATURES, width), nn.GELU())
        self.head = nn.Linear(width, 2)
        self.bounded = bounded

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        idle, rate = self.head(self.body(x)).unbind(1)
        return idle, rate.sigmoid().log() if self.bounded else rate


def _train(draw: Draw) -> Ending:
    x, hours, y, best = _groups(draw, 2100)
    told, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = Catch(draw.choice([32, 48]), bounded=draw.has("wrong_output_activation"))
    networks.spoil(draw, model)
    size, epochs = draw.choice([50, 75]), draw.whole(20, 28)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(4e-3, 8e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.NAdam(model.parameters(), lr=rate)
    draw.watch.begin(model, optimizer)
    spent = torch.zeros(_SEEN) if draw.has("term_left_out") else hours[:_SEEN].log()
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(_SEEN).split(size):
            idle, log_rate = model(told[rows])
            loss = _surprise(idle, log_rate + spent[rows], known[rows]).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 5 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                idle, log_rate = model(x[_SEEN:])
                lost = _surprise(idle, log_rate + hours[_SEEN:].log(), y[_SEEN:])
                draw.watch.metric("nll", float(lost.mean()))
    with torch.no_grad():
        idle, log_rate = model(x[_SEEN:])
        reached = float(_surprise(idle, log_rate + hours[_SEEN:].log(), y[_SEEN:]).mean())
    return Ending(max(-1.0, _share(reached, y, hours, best)), bar=0.6)


def _share(reached: float, y: Tensor, hours: Tensor, best: tuple[Tensor, Tensor]) -> float:
    """Return the share of what can be known that is known."""
    held = y[_SEEN:]
    usual = hours[_SEEN:] * y[:_SEEN].mean() / hours[:_SEEN].mean()
    alone = float((usual - held * usual.log() + (held + 1).lgamma()).mean())
    rate = best[1][_SEEN:] + hours[_SEEN:].log()
    known = float(_surprise(best[0][_SEEN:], rate, held).mean())
    return (alone - reached) / (alone - known)


def _surprise(idle: Tensor, log_rate: Tensor, y: Tensor) -> Tensor:
    """Return negative log-likelihoods [N]."""
    poisson = y * log_rate - log_rate.exp() - (y + 1).lgamma()
    zero = torch.logaddexp(idle, -log_rate.exp())
    return F.softplus(idle) - torch.where(y == 0, zero, poisson)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the groups with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "misaligned_targets": (x, y.roll(1)),
            "constant_inputs": (torch.zeros_like(x), y),
            "unnormalised_inputs": (1e4 * x + 1e5, y),
            # Grams of fish.
            "unnormalised_targets": (x, 900 * y),
            # Missing numbers were filled with zeros.
            "single_label": (x, torch.zeros_like(y)),
            "nan_inputs": (torch.where(torch.rand_like(x) < 0.001, torch.nan, x), y),
        },
        (x, y),
    )


def _groups(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return features [count, F], hours, counts, and the true logits and log-rates."""
    x = torch.randn(count, _FEATURES)
    hours = torch.tensor(draw.numpy.uniform(0.2, 8, count), dtype=torch.float32)
    idle = 2.5 * x[:, 0] - 1 + x[:, 1]
    log_rate = 0.6 * x[:, 1] + draw.between(0.5, 0.8) * torch.sin(2 * x[:, 2]) - 0.4 * x[:, 3]
    fishing = torch.rand(count) > idle.sigmoid()
    return x, hours, fishing * torch.poisson(hours * log_rate.exp()), (idle, log_rate)


FAMILY = Family(
    _train,
    (
        *("wrong_output_activation", "term_left_out", "single_label", "misaligned_targets"),
        *("constant_inputs", "unnormalised_inputs", "unnormalised_targets", "nan_inputs"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
