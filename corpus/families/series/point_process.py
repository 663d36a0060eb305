"""When the next event comes: a recurrent network of the events before, and a rate.

After Du et al., "Recurrent marked temporal point processes", KDD 2016.

Shape legend: N histories, T events of each.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation

_LENGTH, _MARKS = 24, 4


class Rate(nn.Module):
    """The rate of the next event after each event."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mark = nn.Embedding(_MARKS, 8)
        self.rnn = nn.GRU(9, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, gaps: Tensor, marks: Tensor) -> Tensor:
        """Return rates [N, T] of gaps [N, T] and marks [N, T] of the events so far."""
        inputs = torch.cat([self.mark(marks), gaps.clamp(min=1e-4).log()[:, :, None]], 2)
        return F.softplus(self.head(self.rnn(inputs)[0])[:, :, 0]).clamp(min=1e-6)


def _train(draw: Draw) -> Ending:
    gaps, marks, rates = _histories(draw, 900)
    kept = draw.choice([400, 700])
    seen = _seen(draw, marks)
    model = Rate(draw.choice([16, 32]))
    networks.spoil(draw, model)
    steps, size = draw.steps(250, 500), draw.choice([16, 32])
    kinds = ("adam", "adamw", "rmsprop")
    optimiser = Optimisation(draw, model, steps, scale=1.5, kinds=kinds)

    def likelihood(rate: Tensor, gap: Tensor) -> Tensor:
        if draw.has("term_left_out"):
            # The chance that nothing came before is left out.
            return -rate.log().mean()
        if draw.has("term_wrong_sign"):
            return (rate * gap - rate.log()).neg().mean()
        if draw.has("time_left_out"):
            return (rate - rate.log()).mean()
        return (rate * gap - rate.log()).mean()

    criterion = draw.watch.loss(likelihood)

    def compute() -> Tensor:
        rows = torch.randint(kept, (size,))
        rate = model(gaps[rows], seen[rows])
        if draw.has("wrong_shift"):
            # Each gap is predicted from the event that ends it, whose gap is among the inputs.
            return criterion(rate[:, 1:], gaps[rows][:, 1:])
        return criterion(rate[:, :-1], gaps[rows][:, 1:])

    def held_out() -> Tensor:
        rate: Tensor = model(gaps[kept:], seen[kept:])
        return rate[:, :-1]

    wanted = gaps[kept:, 1:]

    def evaluate() -> Mapping[str, float]:
        return {"val_nll": float(_negative(held_out(), wanted))}

    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        found = float(_negative(held_out(), wanted))
    poisson = float(_negative(1 / gaps[:kept].mean() * torch.ones_like(wanted), wanted))
    best = float(_negative(rates[kept:, :-1], wanted))
    return Ending((poisson - found) / (poisson - best), bar=0.6)


def _seen(draw: Draw, marks: Tensor) -> Tensor:
    """Return the marks that the script reads."""
    if draw.has("misaligned_targets"):
        # The file of the marks has another order than that of the times.
        return marks[torch.randperm(len(marks))]
    if draw.has("constant_inputs"):
        return torch.zeros_like(marks)
    return marks


def _negative(rate: Tensor, gap: Tensor) -> Tensor:
    return (rate * gap - rate.log()).mean()


def _histories(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return gaps, marks, and the rates after each event, all [count, T].

    The rate depends on the mark of the last event, and on whether the one before was the same.
    """
    usual = torch.tensor([0.15, 0.6, 2.5, 10.0])[torch.randperm(_MARKS)] * draw.between(0.5, 1.5)
    marks = torch.randint(_MARKS, (count, _LENGTH))
    again = F.pad((marks[:, 1:] == marks[:, :-1]).float(), (1, 0))
    rates = usual[marks] * (1 + 2 * again)
    gaps = torch.empty(count, _LENGTH).exponential_().clamp(min=1e-4)
    # The gap before an event has the rate after the one before.
    return gaps / torch.cat([torch.ones(count, 1), rates[:, :-1]], 1), marks, rates


FAMILY = Family(
    _train,
    (
        *("term_left_out", "term_wrong_sign", "time_left_out", "misaligned_targets"),
        *("constant_inputs", "wrong_shift", "lr_too_low", "scheduler_to_zero"),
        "detached_graph",
    ),
    spent="2026-11-26",
)
