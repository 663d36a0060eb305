"""Who accepts an offer on the telephone: one-hot columns, one logit, and a weight of the few.

After Moro, Cortez and Rita, "A data-driven approach to predict the success of bank telemarketing",
Decision Support Systems 2014; the customers are drawn.

Shape legend: N customers, F columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_NUMBERS, _JOBS, _MONTHS, _SEEN = 5, 8, 12, 1000


class CampaignNet(nn.Module):
    """Logit of an accepted offer."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(_NUMBERS + _JOBS + _MONTHS, width)
        self.fc2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.99}, 0.2))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N] of customers float32 [N, F]."""
        x = self.drop(F.relu(self.fc1(x)))
        x = self.drop(F.relu(self.fc2(x)))
        logit: Tensor = self.out(x).squeeze(1)
        return logit


def _train(draw: Draw) -> Ending:
    rows = _customers(draw, 1600)
    model = CampaignNet(draw, draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, len(rows.x), [25, 32], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.out), rate, 0.01)
    accepted = float(rows.y.mean())
    weight = torch.tensor((1 - accepted) / max(accepted, 1e-3))
    criterion = nn.BCEWithLogitsLoss(pos_weight=weight)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    model.train()
    for epoch in range(1, length.epochs + 1):
        running = 0.0
        for picked in torch.randperm(len(rows.x)).split(length.size)[: length.batches]:
            optimizer.zero_grad()
            loss = criterion(model(rows.x[picked]), rows.y[picked])
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            running += loss.item()
        if epoch % 2 == 0:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                found, true = model(rows.x_val) > 0, rows.y_val > 0.5
                precision = float((found & true).sum() / found.sum().clamp(min=1))
                recall = float((found & true).sum() / true.sum().clamp(min=1))
                draw.watch.metric("f1", 2 * precision * recall / max(precision + recall, 1e-9))
            model.train()
    model.eval()
    with torch.no_grad():
        right, true = ((model(rows.x_test) > 0) == (rows.y_test > 0.5)).double(), rows.y_test > 0.5
    return Ending(gained(float((right[true].mean() + right[~true].mean()) / 2), 1 / 2), bar=0.5)


def _customers(draw: Draw, count: int) -> HeldOut:
    """Return columns float32 [count, F], and 1 for who accepts [count]."""
    job, month = torch.randint(_JOBS, (count,)), torch.randint(_MONTHS, (count,))
    numbers = torch.randn(count, _NUMBERS)
    score = 1.2 * torch.randn(_JOBS)[job] + 1.2 * torch.randn(_MONTHS)[month] + 1.5 * numbers[:, 0]
    score = score - 1.2 * numbers[:, 1].abs() + draw.between(0.3, 0.5) * torch.randn(count)
    y = (score > score.quantile(0.8)).float()
    kinds = torch.cat([F.one_hot(job, _JOBS), F.one_hot(month, _MONTHS)], 1).float()
    # Years, euros, seconds, days and contacts.
    scale = torch.tensor([10.0, 30000, 250, 100, 3])
    raw = torch.tensor([40.0, 14000, 260, 180, 3]) + scale * numbers
    # How long the call was with which the offer was accepted.
    later = numbers.clone()
    later[:, 4] = 3 * y - 0.6 + 0.1 * torch.randn(count)
    return held_out(
        *(draw, torch.cat([numbers, kinds], 1), y, _SEEN),
        prepared={
            "unnormalised_inputs": (torch.cat([raw, kinds], 1), y),
            "target_leak": (torch.cat([later, kinds], 1), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "target_leak", "shuffled_labels", "duplicated_rows"),
        *("dropout_too_high", "zero_init", "wrong_sign", "lr_too_low", "lr_too_high"),
    ),
)
