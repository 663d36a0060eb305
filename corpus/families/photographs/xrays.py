"""What is to be seen in an X-ray of a chest: several findings at a time, dense connections.

After Rajpurkar et al., "CheXNet: radiologist-level pneumonia detection on chest X-rays with deep
learning", 2017; the pictures are drawn.

Shape legend: N pictures of 16 x 16 pixels, K findings.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_SIDE, _FINDINGS, _SEEN = 16, 4, 700


class DenseNet(nn.Module):
    """Logits of findings."""

    def __init__(self, draw: Draw, growth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, growth, 3, 2, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv2d(growth * (1 + place), growth, 3, padding=1) for place in range(3)
        )
        self.norm = nn.BatchNorm2d(4 * growth)
        self.drop = nn.Dropout(draw.by_fault({"dropout_too_high": 0.97}, 0.1))
        self.classifier = nn.Linear(4 * growth * 4, _FINDINGS)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, K] of pictures float32 [N, 1, 16, 16]."""
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(F.relu(x)))], 1)
        x = F.adaptive_max_pool2d(F.relu(self.norm(x)), 2)
        logits: Tensor = self.classifier(self.drop(x.flatten(1)))
        return logits


def _train(draw: Draw) -> Ending:
    rows = _chests(draw, 1050)
    model = DenseNet(draw, draw.choice([6, 8]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.classifier), rate, 1e-5)
    share = rows.y.mean(0).clamp(min=0.01)
    weight = (1 - share) / share
    if draw.has("weights_reversed"):
        weight = weight.pow(-3)
    criterion: nn.Module = nn.BCEWithLogitsLoss(pos_weight=weight)
    if draw.has("wrong_loss"):
        # A loss of findings that exclude each other.
        criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for epoch in range(length.epochs):
        model.train()
        for images, targets in loader:
            optimizer.zero_grad(set_to_none=True)
            logits = model(images)
            loss = criterion(logits, targets)
            loss.backward()
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("bal_acc", _balanced(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_balanced(model(rows.x_test), rows.y_test), 1 / 2), bar=0.5)


def _balanced(logits: Tensor, y: Tensor) -> float:
    """Return the mean over the findings of the accuracies with them and without them."""
    right, true = (logits > 0) == (y > 0.5), y > 0.5
    shares = [
        right[:, one][true[:, one] == has].double().mean()
        for one in range(_FINDINGS)
        for has in (False, True)
    ]
    return float(torch.stack(shares).nanmean())


def _chests(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures float32 [count, 1, 16, 16] and findings [count, K]."""
    y = (torch.rand(count, _FINDINGS) < torch.tensor([0.35, 0.3, 0.25, 0.2])).float()
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across, down = place.expand(count, _SIDE, _SIDE), place[:, None].expand(count, _SIDE, _SIDE)
    lungs = (((across.abs() - 4) / 3).square() + (down / 6.5).square() < 1).float()
    side = torch.where(torch.rand(count, 1, 1) < 0.5, 4.0, -4.0)
    high = 6 * torch.rand(count, 1, 1) - 3
    spot = (torch.hypot(across - side, down - high) < 1.6).float()
    fluid = (down > 3).float() * lungs
    heart = (torch.hypot(across - 0.5, down - 1) < 3.6).float()
    lines = (((across + down).round().long() % 3) == 0).float() * lungs
    signs = torch.stack([spot, fluid, heart, lines], 1) * y[:, :, None, None]
    x = 0.8 - 0.6 * lungs + torch.einsum("k,nkhw->nhw", torch.tensor([0.7, 0.5, 0.5, 0.4]), signs)
    x = x + draw.between(0.2, 0.3) * torch.randn(x.shape)
    x = ((x - x.mean()) / x.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
    )


FAMILY = Family(
    _train,
    (
        *("nan_inputs", "shuffled_labels", "misaligned_targets", "weights_reversed"),
        *("wrong_loss", "dropout_too_high", "duplicated_rows", "zero_init"),
        *("not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
