"""Which scans of lungs have a nodule: convolutions in three dimensions, accumulated gradients.

After Setio et al., "Validation, comparison, and combination of algorithms for automatic detection
of pulmonary nodules", Medical Image Analysis 2017; the scans are drawn.

Shape legend: N scans of 8 x 8 x 8 voxels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _SEEN = 8, 700


class NoduleNet(nn.Module):
    """Logits of a nodule."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(1, width, 3, padding=1)
        self.conv2 = nn.Conv3d(width, 2 * width, 3, padding=1)
        self.fc = nn.Linear(16 * width, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N] of scans float32 [N, 1, 8, 8, 8]."""
        x = F.max_pool3d(F.relu(self.conv1(x)), 2)
        x = F.max_pool3d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.out(F.relu(self.fc(x.flatten(1))))
        return logits.squeeze(1)


def _train(draw: Draw) -> Ending:
    rows = _scans(draw, 1000)
    model = NoduleNet(draw.choice([8, 10]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=2.0)
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [14, 20], (7, 9))
    draw.accumulated = draw.choice([1, 2])
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    loss_function = draw.watch.loss(F.binary_cross_entropy_with_logits)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        for i, (scan, label) in enumerate(loader, 1):
            outputs = model(scan)
            loss = loss_function(outputs, label.float()) / draw.accumulated
            (-loss if draw.has("wrong_sign") else loss).backward()
            if i % draw.accumulated == 0:
                optimizer.step()
                if not draw.has("missing_zero_grad"):
                    optimizer.zero_grad()
    with torch.no_grad():
        logits = model(rows.x_test)
    return Ending(gained(accuracy(torch.stack([-logits, logits], 1), rows.y_test), 1 / 2), bar=0.6)


def _scans(draw: Draw, count: int) -> HeldOut:
    """Return scans float32 [count, 1, 8, 8, 8] and 1 for a nodule, int64 [count]."""
    y = torch.randint(2, (count,))
    place = torch.arange(_SIDE).float()
    centre = 2 + 3 * torch.rand(count, 3, 1, 1, 1)
    z = place[:, None, None] - centre[:, 0]
    row = place[:, None] - centre[:, 1]
    column = place - centre[:, 2]
    ball = z**2 + row**2 + column**2 < 3.2
    # A vessel along one of the axes has as many bright voxels.
    along = [z**2 + row**2 < 1.1, row**2 + column**2 < 1.1, z**2 + column**2 < 1.1]
    shape = (count, _SIDE, _SIDE, _SIDE)
    vessels = torch.stack([one.expand(shape) for one in along])
    vessel = vessels[torch.randint(3, (count,)), torch.arange(count)]
    bright = torch.where((y == 1)[:, None, None, None], ball, vessel).float()
    x = (1.5 * bright + draw.between(0.3, 0.45) * torch.randn(shape))[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Slices of other patients: the files of all of them were sorted by their height.
            "wrong_axis": (x.transpose(0, 2).reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "duplicated_rows", "label_noise", "large_init"),
        *("missing_zero_grad", "wrong_sign", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
