"""Rock, paper or scissors: a few convolutions, and a rate that falls when nothing improves.

After Moroney, "rock-paper-scissors", a data set of tutorials, 2019; the hands are drawn.

Shape legend: N pictures of 16 x 16 pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_SIDE, _KINDS, _SEEN = 16, 3, 480


class HandNet(nn.Module):
    """Log-probabilities of hands."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3)
        self.conv2 = nn.Conv2d(width, 2 * width, 3)
        self.fc1 = nn.Linear(2 * width * 4, 32)
        self.fc2 = nn.Linear(32, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities [N, 3] of pictures float32 [N, 1, 16, 16]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        found: Tensor = self.fc2(x)
        return found.log_softmax(1)


def _train(draw: Draw) -> Ending:
    rows = _hands(draw, 700)
    model = HandNet(draw.choice([8, 10]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [12, 16], (10, 13))
    rate, weights = learning_rate(draw, 2e-3, 4e-3), trained(draw, model, model.fc2)
    optimizer: torch.optim.Optimizer = torch.optim.RMSprop(weights, lr=rate)
    if draw.has("wrong_optimizer"):
        # The rate is that of an optimizer which divides by the size of the gradient.
        optimizer = torch.optim.SGD(weights, lr=rate / 40)
    plateaus = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    criterion = nn.NLLLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for images, labels in loader:
            found = model(images)
            loss = criterion(found, labels)
            model.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            found = model(rows.x_val)
            plateaus.step(float(criterion(found, rows.y_val)))
            draw.watch.metric("accuracy", accuracy(found, rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.6)


def _hands(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures float32 [count, 1, 16, 16] and which hands int64 [count]."""
    y = torch.randint(_KINDS, (count,))
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across = (place + 3 * torch.rand(count, 1, 1) - 1.5).expand(count, _SIDE, _SIDE)
    down = (place[:, None] + 3 * torch.rand(count, 1, 1) - 1.5).expand(count, _SIDE, _SIDE)
    fist = torch.hypot(across, down - 2) < 3.4
    palm = (across.abs() < 3) & (down > -6.5) & (down < 5)
    fingers = fist | ((across.abs() - 1.5 + 0.2 * down).abs() < 0.9) & (down < 2) & (down > -6.5)
    x = torch.stack([fist, palm, fingers], 1)[torch.arange(count), y].float()
    light = torch.rand(count, 1, 1) * across / 8
    x = (x + 0.5 * light + draw.between(0.3, 0.5) * torch.randn(x.shape))[:, None]
    x = (x - x.mean()) / x.std()
    return held_out(
        *(draw, x, y, _SEEN),
        training={
            # All pictures of a folder are of one hand.
            "single_label": (x, torch.zeros_like(y)),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_optimizer", "duplicated_rows", "shuffled_labels", "misaligned_targets"),
        *("single_label", "constant_inputs", "dead_relu", "small_init", "lr_too_high"),
    ),
    spent="2026-11-28",
)
