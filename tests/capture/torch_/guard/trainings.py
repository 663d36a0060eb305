"""Trainings in which a gradient stops being finite."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from vinedresser.capture import Hook
from vinedresser.snapshots.settings import SnapshotSettings

BAD_STEP, BAD_ROW = 6, 5


class Distances(nn.Module):
    """Embeds images; the loss is the mean distance between the embeddings of two of them.

    The derivative of a distance of zero is not finite.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, images: Tensor) -> Tensor:
        """Return the embeddings [batch, 3] of images [batch, 1, 8, 8]."""
        hidden = self.norm(self.conv(images)).relu()
        return torch.as_tensor(self.head(self.drop(hidden.flatten(1))))


class DistanceLoss(nn.Module):
    """The mean distance of embeddings [batch, 3] from targets [batch, 3]."""

    def forward(self, found: Tensor, weights: Tensor) -> Tensor:
        """Return the mean of the weighted norms, []."""
        return ((found * weights) ** 2).sum(1).sqrt().mean()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return images and weights of a step; one weight of the bad step is zero."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(16, 1, 8, 8, generator=generator)
    weights = torch.ones(16, 3)
    if step == BAD_STEP:
        weights[BAD_ROW] = 0
    return images, weights


def train(
    run: Path | str | None,
    steps: int = 10,
    *,
    guard: str = "nonfinite",
    snapshots: SnapshotSettings | None = None,
) -> tuple[Distances, list[float]]:
    """Train with a hook, or without one; return the model and the losses."""
    torch.manual_seed(0)
    model, loss_fn = Distances(), DistanceLoss()
    optimizer = torch.optim.Adam(model.parameters())
    hook = None
    if run is not None:
        hook = Hook(run, guard=guard, snapshots=snapshots)
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
    losses = []
    try:
        for step in range(steps):
            images, weights = batch(step)
            optimizer.zero_grad()
            loss = loss_fn(model(images), weights)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    finally:
        if hook is not None:
            hook.close()
    return model, losses
