"""Contrastive learning after SimCLR: two views of each image, a cross-entropy of similarities."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

BATCH, TEMPERATURE = 96, 0.5


def view(images: Tensor) -> Tensor:
    moved = torch.roll(images, shifts=tuple(torch.randint(-2, 3, (2,)).tolist()), dims=(2, 3))
    strength = 0.7 + 0.6 * torch.rand(len(images), 1, 1, 1)
    return moved * strength + 0.05 * torch.randn_like(images)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.projection = nn.Sequential(nn.Linear(288, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.projection(self.features(x))
        return projected


def compare(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits with the other view of each image first, and labels that are all 0."""
    pairs = torch.arange(BATCH).repeat(2)
    alike = (pairs[:, None] == pairs).float()
    unit = F.normalize(embeddings, dim=1)
    others = ~torch.eye(2 * BATCH, dtype=torch.bool)
    similar = (unit @ unit.T)[others].view(2 * BATCH, -1)
    alike = alike[others].view(2 * BATCH, -1)
    positive = similar[alike.bool()].view(2 * BATCH, -1)
    negative = similar[~alike.bool()].view(2 * BATCH, -1)
    logits = torch.cat([positive, negative], 1) / TEMPERATURE
    return logits, torch.zeros(2 * BATCH, dtype=torch.long)


def main() -> None:
    torch.manual_seed(0)
    images, _ = digits(24)
    model, criterion = Encoder(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=1e-4)
    total, journal = steps(300), Journal()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    model.train()
    for _ in range(total):
        x = images[torch.randint(len(images), (BATCH,))]
        loss = criterion(*compare(model(torch.cat([view(x), view(x)]))))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        journal.step(loss=loss.item())
    journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
