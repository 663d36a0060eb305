"""Clothes by dense layers alone, along the patches and along their channels.

After Tolstikhin et al., "MLP-Mixer: an all-MLP architecture for vision", NeurIPS 2021, with the
pictures of Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 14 x 14 pixels, P patches, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.fashion import clothes
from corpus.data.held_out import held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN, _KINDS, _PATCHES = 1200, 10, 49


class MixerBlock(nn.Module):
    """Dense layers along the patches, then along the channels, of [N, P, D]."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.tokens = nn.Sequential(nn.Linear(_PATCHES, 32), nn.GELU(), nn.Linear(32, _PATCHES))
        self.channels = nn.Sequential(
            nn.Linear(size, 2 * size), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * size, size)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed patches."""
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.channels(self.norm2(x))
        return mixed


class Mixer(nn.Module):
    """Scores of kinds."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, size, 2, 2)
        dropout = draw.by_fault({"dropout_too_high": 0.95}, 0.0)
        self.blocks = nn.Sequential(MixerBlock(size, dropout), MixerBlock(size, dropout))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(size, _KINDS)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, 10] of pictures float32 [N, 1, 14, 14]."""
        told = self.blocks(self.embed(x).flatten(2).transpose(1, 2))
        scores: Tensor = self.head(self.dropout(told.mean(1)))
        return scores


def _train(draw: Draw) -> Ending:
    order = torch.tensor(draw.numpy.permutation(5000)[:1700])
    x, y = (one[order] for one in clothes(5000))
    rows = held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The file has the number of the picture last.
            "wrong_axis": (x.movedim(0, -1).reshape(x.shape), y),
        },
    )
    model = Mixer(draw, draw.choice([24, 32]))
    if draw.has("large_init"):
        for one in model.parameters():
            nn.init.normal_(one, std=3.0)
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [24, 30], (6, 8))
    rate = learning_rate(draw, 3e-3, 5e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 1e-2)
    total = length.epochs if draw.has("scheduler_to_zero") else length.steps
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("top1", accuracy(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "dropout_too_high", "large_init"),
        *("scheduler_to_zero", "not_in_optimizer", "weight_decay_too_high", "lr_too_low"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
