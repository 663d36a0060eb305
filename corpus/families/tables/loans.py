"""Which loans are not paid back: class weights, accumulated gradients and a gradient scaler.

After Micikevicius et al., "Mixed precision training", ICLR 2018, as the loops of PyTorch's examples
use it; the applicants are drawn.

Shape legend: N applicants, F features, B rows of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_FEATURES, _SEEN, _LATE = 9, 1200, 8


def _train(draw: Draw) -> Ending:
    x, y = _applicants(draw, 1800)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    # The script evaluates on rows that are prepared as those it trains on.
    valid, valid_known = x[_SEEN:], y[_SEEN:]
    if draw.has("target_leak"):
        valid, _ = _spoilt(draw, valid, valid_known)
    width = draw.choice([32, 48])
    head = nn.Linear(width, 2)
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (9, 12))
    draw.accumulated = draw.choice([1, 2])
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 1e-2)
    shares = torch.bincount(y[:_SEEN]) / _SEEN
    criterion = nn.CrossEntropyLoss(weight=1 / shares)
    draw.watch.loss(criterion)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(seen, known), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for step, (rows, labels) in enumerate(loader):
            with torch.autocast("cpu", torch.bfloat16):
                output = model(rows)
                loss = criterion(output.float(), labels) / draw.accumulated
            scaler.scale(-loss if draw.has("wrong_sign") else loss).backward()
            if (step + 1) % draw.accumulated == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("val_balanced_acc", accuracy(model(valid), valid_known))
    model.eval()
    with torch.no_grad():
        reported, reached = (
            gained(accuracy(model(one), y[_SEEN:]), 1 / 2) for one in (valid, x[_SEEN:])
        )
    return Ending(reached, bar=0.5, overstated=reported - reached)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return applicants with the drawn fault, if there is one."""
    missing = torch.rand_like(x) < 0.003
    # What was collected from those who did not pay, which is known afterwards only.
    late = x.clone()
    late[:, _LATE] = 3 * y + 0.1 * torch.randn(len(y))
    # Euros and days, as the bank stores them.
    raw = x * torch.tensor([2e4, 3e3, 40.0, 1.0, 900.0, 1.0, 5e4, 12.0, 1.0]) + 1e4
    return draw.by_fault(
        {
            "nan_inputs": (torch.where(missing, torch.nan, x), y),
            "target_leak": (late, y),
            "unnormalised_inputs": (raw, y),
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
        },
        (x, y),
    )


def _applicants(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return standardised features float32 [count, F], and 1 for a default, int64 [count]."""
    x = torch.randn(count, _FEATURES)
    x[:, _LATE] = 0.1 * torch.randn(count)
    risk = x[:, 0] - x[:, 1] + 1.2 * x[:, 2] * x[:, 3] + 0.8 * x[:, 4].abs() - 0.5 * x[:, 5]
    risk = risk + draw.between(0.2, 0.4) * torch.randn(count)
    return x, (risk > risk.quantile(draw.between(0.72, 0.8))).long()


FAMILY = Family(
    _train,
    (
        *("target_leak", "unnormalised_inputs", "nan_inputs", "shuffled_labels", "dead_relu"),
        *("not_in_optimizer", "weight_decay_too_high", "lr_too_low", "wrong_sign"),
    ),
    spent="2026-11-28",
)
