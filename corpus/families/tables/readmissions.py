"""Which patients come back within a month: missing values, a weight of the rare class, plateaus.

After Strack et al., "Impact of HbA1c measurement on hospital readmission rates", BioMed Research
International 2014; the patients are drawn.

Shape legend: N patients, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_MEASURED, _SEEN = 8, 1200


def _train(draw: Draw) -> Ending:
    rows = _patients(draw, 1800)
    width = draw.choice([32, 48])
    dropout = draw.by_fault({"dropout_too_high": 0.99}, 0.1)
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(2 * _MEASURED, width), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(width, width), nn.ReLU(), head),
    )
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [24, 30], (10, 13))
    rate = learning_rate(draw, 2e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    share = rows.y.float().mean()
    criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - share) / share)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    train_loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True)
    for _ in range(length.epochs):
        model.train()
        for features, readmitted in train_loader:
            optimizer.zero_grad()
            logits = model(features).squeeze(1)
            loss = criterion(logits, readmitted.float())
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            logits = model(rows.x_val).squeeze(1)
            valid_loss = criterion(logits, rows.y_val.float())
            draw.watch.metric("valid_loss", float(valid_loss))
            draw.watch.metric("valid_bal_acc", _right(logits, rows.y_val))
        scheduler.step(float(valid_loss))
    model.eval()
    with torch.no_grad():
        reported, reached = (
            gained(_right(model(x).squeeze(1), y), 1 / 2)
            for x, y in ((rows.x_val, rows.y_val), (rows.x_test, rows.y_test))
        )
    return Ending(reached, bar=0.45, overstated=reported - reached)


def _right(logits: Tensor, y: Tensor) -> float:
    return accuracy(torch.stack([-logits, logits], 1), y)


def _patients(draw: Draw, count: int) -> HeldOut:
    """Return features float32 [N, 2 F], with what is missing, and 1 for a return, int64 [N]."""
    measured = torch.randn(count, _MEASURED)
    risk = measured[:, 0] + 0.9 * measured[:, 1].abs() - 0.8 * measured[:, 2] * measured[:, 3]
    risk = risk + 0.6 * measured[:, 4] + draw.between(0.2, 0.4) * torch.randn(count)
    y = (risk > risk.quantile(draw.between(0.72, 0.8))).long()
    missing = torch.rand(count, _MEASURED) < 0.06
    x = torch.cat([measured.masked_fill(missing, 0.0), missing.float()], 1)
    unfilled = measured.masked_fill(missing, torch.nan)
    # The days until the next stay, 0 if there is none.
    later = x.clone()
    later[:, 7] = y * (1 + torch.rand(count))
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "target_leak": (later, y),
            # Not filled in.
            "nan_inputs": (torch.cat([unfilled, missing.float()], 1), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("target_leak", "nan_inputs", "shuffled_labels", "dropout_too_high", "wrong_sign"),
        *("zero_init", "lr_too_low", "lr_too_high", "dead_relu"),
    ),
    spent="2026-11-28",
)
