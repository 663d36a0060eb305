"""Which customers of a telephone company leave it: numbers and categories of a table.

After Guo and Berkhahn, "Entity embeddings of categorical variables", 2016.

Shape legend: N customers, F numbers, K categories.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_NUMBERS, _CODES, _SEEN = 5, (12, 8), 1200


class Customers(nn.Module):
    """Logits of leaving."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.codes = nn.ModuleList(nn.Embedding(one, 6) for one in _CODES)
        self.body = nn.Sequential(
            *(nn.Linear(_NUMBERS + 6 * len(_CODES), width), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.ReLU()),
        )
        self.head = nn.Linear(width, 1)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Return logits [N] of numbers float32 [N, F] and categories int64 [N, K]."""
        told = [made(codes[:, place]) for place, made in enumerate(self.codes)]
        logits: Tensor = self.head(self.body(torch.cat([numbers, *told], 1)))[:, 0]
        return logits


def _train(draw: Draw) -> Ending:
    numbers, codes, y = _customers(draw, 1800)
    seen, kinds, known = _spoilt(draw, numbers[:_SEEN], codes[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.0, 0.1, 0.2]))
    model = Customers(draw.choice([32, 48]), dropout)
    length = plan(draw, _SEEN, [30, 40], (9, 13))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=length.steps + 1)
    criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - y).sum() / y.sum())
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        logits = model(seen[rows], kinds[rows])
        if draw.has("sigmoid_before_logits"):
            # The score of the class that is listed first.
            logits = (-logits).sigmoid()
        loss: Tensor = criterion(logits, known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        logits = model(numbers[_SEEN:], codes[_SEEN:])
        return {"val_auc": float(roc_auc_score(y[_SEEN:].numpy(), logits.nan_to_num().numpy()))}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_batch=cycle, clip=1.0)
    model.eval()
    with torch.no_grad():
        return Ending(2 * evaluate()["val_auc"] - 1, bar=0.6)


def _spoilt(draw: Draw, x: Tensor, codes: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the customers with the drawn fault, if there is one."""
    leak = torch.cat([x[:, :-1], 6 * y[:, None] - 3 + 0.1 * torch.randn(len(y), 1)], 1)
    units = 10 ** torch.linspace(3, 6, _NUMBERS)
    # Codes that were counted anew, in the order of their frequency.
    renamed = torch.stack([torch.randperm(n)[codes[:, i]] for i, n in enumerate(_CODES)], 1)
    shuffled, mixed = y[torch.randperm(len(y))], torch.randperm(len(y))
    return draw.by_fault(
        {
            "target_leak": (leak, codes, y),
            "unnormalised_inputs": (x * units + units, codes, y),
            "swapped_ids": (x, renamed, y),
            "shuffled_labels": (x, codes, shuffled),
            # Two files that were joined by the number of the line, after one was sorted.
            "swapped_groups": (x, codes[mixed], y),
            "single_label": (x, codes, torch.zeros_like(y)),
        },
        (x, codes, y),
    )


def _customers(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers [count, F], categories [count, K], and who leaves, float32 [count]."""
    x = torch.randn(count, _NUMBERS)
    codes = torch.stack([torch.randint(one, (count,)) for one in _CODES], 1)
    worth = [2.0 * torch.randn(one) for one in _CODES]
    leaning = sum((one[codes[:, i]] for i, one in enumerate(worth)), torch.zeros(count))
    leaning = leaning + 1.2 * x[:, 0] - x[:, 1] * x[:, 2] - draw.between(0.7, 1.2)
    return x, codes, (torch.rand(count) < (1.5 * leaning).sigmoid()).float()


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "swapped_groups", "target_leak", "sigmoid_before_logits"),
        *("unnormalised_inputs", "shuffled_labels", "single_label", "dropout_too_high"),
        *("lr_too_high", "lr_too_low", "wrong_parameters", "missing_step"),
    ),
    spent="2026-11-27",
)
