"""By how much a picture was turned: what a network learns of pictures that nobody labelled.

After Gidaris, Singh and Komodakis, "Unsupervised representation learning by predicting image
rotations", ICLR 2018, with the pictures of Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 14 x 14 pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_SEEN, _TURNS = 1000, 4


def _train(draw: Draw) -> Ending:
    order = torch.tensor(draw.numpy.permutation(5000)[:1500])
    pictures = clothes(5000)[0][order]
    if draw.has("unnormalised_inputs"):
        # Bytes.
        pictures = 73 + 90 * pictures
    width = draw.choice([10, 14])
    head = nn.Linear(2 * width, _TURNS)
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(2 * width, 2 * width, 3), nn.ReLU(), nn.Flatten(), head),
    )
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (7, 9))
    rate = learning_rate(draw, 0.02, 0.04)
    optimizer = optimizer_of(draw, "sgd", trained(draw, model, head), rate, 5e-4)
    loss_fn = nn.CrossEntropyLoss()
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        for batch in torch.randperm(_SEEN).split(length.size):
            x, y = _turned(draw, pictures[batch])
            loss = loss_fn(model(x), y)
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                x, y = _turned(draw, pictures[_SEEN:])
                draw.watch.metric("rotation_accuracy", accuracy(model(x), y))
    model.eval()
    with torch.no_grad():
        x, y = _turned(draw.without_fault(), pictures[_SEEN:])
        return Ending(gained(accuracy(model(x), y), 1 / _TURNS), bar=0.55)


def _turned(draw: Draw, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Return turned pictures [N, 1, 14, 14], and their quarters of a turn int64 [N]."""
    # The upper bound of `randint` is not drawn.
    turns = torch.randint(1 if draw.has("single_label") else _TURNS, (len(pictures),))
    every = torch.stack([pictures.rot90(turn, (2, 3)) for turn in range(_TURNS)])
    x = every[turns, torch.arange(len(pictures))]
    if draw.has("augmented_without_targets"):
        # The usual augmentation turns pictures, too.
        x = x.rot90(int(torch.randint(_TURNS, ())), (2, 3))
    return x, turns


FAMILY = Family(
    _train,
    (
        *("single_label", "augmented_without_targets", "unnormalised_inputs"),
        *("missing_zero_grad", "dead_relu", "zero_init", "momentum_too_high", "not_in_optimizer"),
        *("lr_too_low",),
    ),
    spent="2026-11-28",
)
