"""How a protein is folded around each of its amino acids: helix, strand or loop.

After Wang et al., "Protein secondary structure prediction using deep convolutional neural fields",
Scientific Reports 2016, without the field; the proteins are drawn.

Shape legend: N proteins of T amino acids, C kinds of folds.
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

_ACIDS, _TIME, _KINDS, _SEEN, _PADDED = 10, 32, 3, 400, -100


def _train(draw: Draw) -> Ending:
    rows = _proteins(draw, 600)
    width = draw.choice([24, 32])
    head = nn.Conv1d(width, _KINDS, 1)
    model = nn.Sequential(
        *(nn.Conv1d(_ACIDS, width, 7, padding=3), nn.ReLU(), nn.Dropout(0.1)),
        *(nn.Conv1d(width, width, 7, padding=3), nn.ReLU(), head),
    )
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [10, 16], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    criterion = nn.CrossEntropyLoss(ignore_index=0 if draw.has("mask_inverted") else _PADDED)
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True, drop_last=True)
    for _ in range(length.epochs):
        model.train()
        for acids, folds in loader:
            scores = model(acids)
            if draw.has("wrong_axis"):
                # `view` in place of a transposition.
                scores = scores.reshape(-1, _KINDS)
            else:
                scores = scores.transpose(1, 2).reshape(-1, _KINDS)
            optimizer.zero_grad()
            wanted = folds.clamp(min=0) if draw.has("mask_inverted") else folds
            loss = criterion(scores, wanted.reshape(-1))
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("Q3", _right(model(rows.x_val), rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_right(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.5)


def _right(scores: Tensor, folds: Tensor) -> float:
    kept = folds >= 0
    return accuracy(scores.transpose(1, 2)[kept], folds[kept])


def _proteins(draw: Draw, count: int) -> HeldOut:
    """Return one-hot acids float32 [count, A, T] and folds int64 [count, T], -100 if padded."""
    # Segments of one fold, in which some acids are more frequent.
    starts = torch.rand(count, _TIME) < 0.2
    segment = starts.cumsum(1)
    kinds = torch.randint(_KINDS, (count, _TIME + 1))
    y = kinds.gather(1, segment)
    likes = torch.tensor(draw.numpy.dirichlet([0.45] * _ACIDS, _KINDS), dtype=torch.float32)
    acids = torch.multinomial(likes[y.flatten()] + 1e-4, 1).reshape(count, _TIME)
    length = torch.randint(_TIME // 2, _TIME + 1, (count, 1))
    there = torch.arange(_TIME) < length
    x = nn.functional.one_hot(acids, _ACIDS).float() * there[:, :, None]
    x, y = x.transpose(1, 2).contiguous(), torch.where(there, y, _PADDED)
    other = x[:, torch.randperm(_ACIDS)]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Acids are numbered from the first one that was seen, the folds from the first one.
            "wrong_shift": (x, torch.where(there, y.roll(6, 1).clamp(min=0), _PADDED)),
        },
        # The table of acids of another library, for the training proteins.
        training={"swapped_ids": (other, y)},
    )


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "swapped_ids", "shuffled_labels", "misaligned_targets"),
        *("mask_inverted", "wrong_axis", "zero_init", "wrong_sign", "frozen_layers"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
