"""What kind of mole a picture shows, most of which are harmless: a sampler that evens them out.

After Tschandl, Rosendahl and Kittler, "The HAM10000 dataset", Scientific Data 2018; the pictures
are drawn.

Shape legend: N pictures of 3 colours and 12 x 12 pixels, C kinds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SIDE, _KINDS, _SEEN = 12, 4, 900


def _model(draw: Draw, width: int) -> tuple[nn.Sequential, nn.Linear]:
    momentum = draw.by_fault({"bn_momentum": 1e-4}, 0.1)
    head = nn.Linear(2 * width, _KINDS)
    model = nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width, momentum=momentum), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1)),
        *(nn.BatchNorm2d(2 * width, momentum=momentum), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head),
    )
    return model, head


def _train(draw: Draw) -> Ending:
    rows = _pictures(draw, 1400)
    model, head = _model(draw, draw.choice([12, 16]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [25, 30], (8, 10))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate, 1e-5)
    criterion = nn.CrossEntropyLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    shares = torch.bincount(rows.y, minlength=_KINDS).clamp(min=1).double()
    weights = (shares**3 if draw.has("weights_reversed") else 1 / shares)[rows.y]
    loader = DataLoader(
        TensorDataset(rows.x, rows.y),
        length.size,
        sampler=WeightedRandomSampler(weights.tolist(), len(rows.y)),
        drop_last=True,
    )
    for epoch in range(length.epochs):
        model.train()
        for pictures, kinds in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(_augmented(draw, pictures)), kinds)
            loss.backward()
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                scores = model(rows.x_val)
                draw.watch.metric("val_loss", float(criterion(scores, rows.y_val)))
                draw.watch.metric("balanced_accuracy", accuracy(scores, rows.y_val))
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _augmented(draw: Draw, pictures: Tensor) -> Tensor:
    """Return pictures that are mirrored now and then."""
    if draw.has("ruinous_augmentation"):
        # Random erasing, of nearly all of the picture.
        erased = torch.randn(pictures.shape)
        erased[:, :, 0], erased[:, :, -1] = pictures[:, :, 0], pictures[:, :, -1]
        return erased
    return pictures.flip(3) if torch.rand(()) < 0.5 else pictures


def _pictures(draw: Draw, count: int) -> HeldOut:
    """Return pictures float32 [count, 3, 12, 12] and kinds int64 [count]."""
    y = torch.multinomial(torch.tensor([0.6, 0.18, 0.14, 0.08]), count, replacement=True)
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    across = (place - torch.randn(count, 1, 1)).expand(count, _SIDE, _SIDE)
    down = (place[:, None] - torch.randn(count, 1, 1)).expand(count, _SIDE, _SIDE)
    # Kinds differ by how long they are, and by how many colours they have.
    long, coloured = (y % 2 == 1)[:, None, None], (y >= 2)[:, None, None]
    inside = (across / torch.where(long, 5.2, 3.4)) ** 2 + (down / 3) ** 2 < 1
    brown = inside.float()
    blue = (inside & coloured & (down + across > 0)).float()
    x = torch.stack([brown - blue, -0.3 * brown, blue - 0.5 * brown], 1)
    x = x + draw.between(0.25, 0.4) * torch.randn(count, 3, _SIDE, _SIDE)
    return held_out(
        *(draw, x, y, _SEEN),
        # Of the training loader alone, `ToTensor` and `Normalize` were left out.
        training={"preprocessing_mismatch": (160 + 60 * x, y)},
    )


FAMILY = Family(
    _train,
    (
        *("weights_reversed", "preprocessing_mismatch", "ruinous_augmentation", "shuffled_labels"),
        *("off_by_one", "constant_inputs", "bn_momentum", "zero_init", "wrong_parameters"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
