"""Which language a name is from, letter by letter: a recurrent cell that the script unrolls.

After Robertson, "NLP from scratch: classifying names with a character-level RNN", PyTorch
tutorials 2017, in batches of padded names; the languages are drawn.

Shape legend: N names of T letters, C languages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_LETTERS, _TIME, _LANGUAGES, _SEEN = 21, 10, 4, 900


class NameRNN(nn.Module):
    """Logarithms of the probabilities of languages."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw, self.size = draw, size
        self.letters = nn.Embedding(_LETTERS, 16)
        self.cell = nn.GRUCell(16, size)
        self.out = nn.Linear(size, _LANGUAGES)

    def forward(self, names: Tensor) -> Tensor:
        """Return logarithms [N, C] of letters int64 [N, T], 0 for none."""
        state = torch.zeros(len(names), self.size)
        for letters in names.T:
            if self.draw.has("state_reset"):
                state = torch.zeros_like(state)
            new = self.cell(self.letters(letters), state)
            # The state of a name that has ended stays.
            state = torch.where((letters > 0)[:, None], new, state)
        scores: Tensor = self.out(state)
        return scores.log_softmax(1)


def _train(draw: Draw) -> Ending:
    names, y = _names(draw, 1300)
    seen, known = _spoilt(draw, names[:_SEEN], y[:_SEEN])
    model = NameRNN(draw, draw.choice([32, 48]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=10.0)
    length = plan(draw, _SEEN, [15, 20], (8, 11))
    rate = learning_rate(draw, 5e-3, 1e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.6)
    if draw.has("scheduler_per_batch"):
        steps = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.6)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        loss: Tensor = criterion(model(seen[rows]), known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"acc": accuracy(model(names[_SEEN:]), y[_SEEN:])}

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=5.0, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(gained(evaluate()["acc"], 1 / _LANGUAGES), bar=0.5)


def _spoilt(draw: Draw, names: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return names with the drawn fault, if there is one."""
    few = torch.arange(len(names)) % 16
    rare = (torch.rand(len(y)) < 0.98) & (y > 0)
    return draw.by_fault(
        {
            # A table of letters without case and accents: all that it does not know is one.
            "colliding_ids": (names.clamp(max=2), y),
            "duplicated_rows": (names[few], y[few]),
            # One file was read in full, and a few lines of the others.
            "class_imbalance": (names, torch.where(rare, 0, y)),
            "shuffled_labels": (names, y[torch.randperm(len(y))]),
            # The files and the names of languages are listed in different orders.
            "off_by_one": (names, (y + 1) % _LANGUAGES),
        },
        (names, y),
    )


def _names(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return letters int64 [count, T], 0 for none, and languages int64 [count]."""
    source = draw.numpy
    # How often each letter follows another one, in each language.
    follows = source.dirichlet(np.full(_LETTERS - 1, 0.15), (_LANGUAGES, _LETTERS - 1))
    bounds = follows.cumsum(2)
    y = source.integers(0, _LANGUAGES, count)
    now = source.integers(0, _LETTERS - 1, count)
    letters = [now + 1]
    for _ in range(_TIME - 1):
        drawn = source.random((count, 1))
        now = (bounds[y, now] < drawn).sum(1).clip(max=_LETTERS - 2)
        letters.append(now + 1)
    length = source.integers(5, _TIME + 1, (count, 1))
    names = np.where(np.arange(_TIME) < length, np.stack(letters, 1), 0)
    return torch.tensor(names), torch.tensor(y)


FAMILY = Family(
    _train,
    (
        *("colliding_ids", "state_reset", "duplicated_rows", "class_imbalance", "shuffled_labels"),
        *("off_by_one", "large_init", "scheduler_per_batch"),
        *("wrong_parameters", "lr_too_high"),
    ),
    spent="2026-11-28",
)
