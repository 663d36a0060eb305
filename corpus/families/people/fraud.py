"""Payments of which few are fraud: a focal loss, written as a module.

After Lin et al., "Focal loss for dense object detection", ICCV 2017.

Shape legend: N payments, F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_FEATURES, _SEEN = 10, 2400


class FocalLoss(nn.Module):
    """Cross-entropy of logits that counts what is right already less."""

    def __init__(self, *, inverted: bool) -> None:
        super().__init__()
        self.inverted = inverted

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean of all rows."""
        lost = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
        right = torch.exp(-lost)
        weight = right**6 if self.inverted else (1 - right) ** 2
        return (weight * lost).mean()


def _train(draw: Draw) -> Ending:
    x, y = _payments(draw, 4200)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.99}, draw.choice([0.0, 0.1]))
    width = draw.choice([48, 64])
    model = nn.Sequential(
        *(nn.Linear(_FEATURES, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 1)),
    )
    networks.blank(draw, model)
    size, epochs = draw.choice([60, 80]), draw.whole(14, 20)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(2e-3, 4e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-7, 1e-6), "lr_too_high": 3000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    criterion = draw.watch.loss(FocalLoss(inverted=draw.has("wrong_loss")))
    draw.watch.begin(model, optimizer)
    # Fraud is drawn more often.
    weight = torch.where(known > 0, 8.0, 1.0)
    sampler = WeightedRandomSampler(weight.tolist(), _SEEN)
    loader = DataLoader(TensorDataset(seen, known), size, sampler=sampler)
    for epoch in range(epochs):
        model.train()
        for batch, label in loader:
            optimizer.zero_grad()
            logits = model(batch)[:, 0]
            if draw.has("sigmoid_before_logits"):
                logits = -logits.sigmoid()
            loss = criterion(logits, label)
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        if epoch % 4 == 3:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val/ap", _precision(model, x[_SEEN:], y[_SEEN:]))
    model.eval()
    with torch.no_grad():
        rare = float(y[_SEEN:].mean())
        return Ending((_precision(model, x[_SEEN:], y[_SEEN:]) - rare) / (1 - rare), bar=0.5)


def _precision(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the average precision."""
    return float(average_precision_score(y.numpy(), model(x)[:, 0].nan_to_num().numpy()))


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the payments with the drawn fault, if there is one."""
    leak = 4 * y - 0.2 + 0.3 * torch.randn(len(y))
    return draw.by_fault(
        {
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            # Fraud is reported later than the table was made.
            "single_label": (x, torch.zeros_like(y)),
            # A feature that is filled in once a fraud is known.
            "target_leak": (torch.cat([x[:, :-1], leak[:, None]], 1), y),
            "constant_inputs": (torch.zeros_like(x), y),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
        (x, y),
    )


def _payments(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return features float32 [count, F] and whether a payment is fraud."""
    x = torch.randn(count, _FEATURES)
    odd = x[:, 0] * x[:, 1] + x[:, 2].abs() + 0.8 * x[:, 3] - 0.5 * x[:, 4]
    odd = odd + draw.between(0.1, 0.2) * torch.randn(count)
    return x, (odd > odd.quantile(0.93)).float()


FAMILY = Family(
    _train,
    (
        *("wrong_loss", "target_leak", "sigmoid_before_logits", "shuffled_labels"),
        *("single_label", "constant_inputs", "wrong_axis", "dropout_too_high"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
