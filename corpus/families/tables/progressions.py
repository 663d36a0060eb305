"""Progression of a disease after one year: a small network, few patients, an elastic-net penalty.

The measurements are those of Efron, Hastie, Johnstone and Tibshirani, "Least angle regression",
Annals of Statistics 2004, in scikit-learn.

Shape legend: N patients, F features.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_diabetes
from torch import nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_FEATURES, _SEEN, _SIZE = 10, 320, 16


def _train(draw: Draw) -> Ending:
    rows = _patients(draw)
    width = draw.by_fault({"overfitting": 512}, draw.choice([24, 32]))
    head = nn.Linear(width, 1)
    model = nn.Sequential(nn.Linear(_FEATURES, width), nn.ReLU(), head)
    networks.spoil(draw, model)
    # What nobody stops in time.
    epochs = draw.whole(14, 18) * draw.by_fault({"overfitting": 8}, 1)
    draw.epoch = _SEEN // _SIZE
    draw.watch.expect(epochs * draw.epoch)
    rate = learning_rate(draw, 2e-3, 4e-3)
    l1 = draw.by_fault({"over_regularization": draw.extent(3, 30), "overfitting": 0.0}, 1e-4)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    loss_fn = nn.MSELoss()
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for batch in torch.randperm(_SEEN).split(_SIZE)[: draw.epoch]:
            optimizer.zero_grad()
            wanted = rows.y[batch]
            if draw.has("wrong_broadcast"):
                wanted = wanted[:, 0]
            loss = loss_fn(model(rows.x[batch]), wanted)
            loss = loss + l1 * sum(one.abs().sum() for one in model.parameters())
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("valid_loss", float(loss_fn(model(rows.x_val), rows.y_val)))
    with torch.no_grad():
        # Half of the variance is not in the measurements.
        return Ending(explained(model(rows.x_test), rows.y_test) / 0.5, bar=0.5)


def _patients(draw: Draw) -> HeldOut:
    """Return standardised measurements float32 [N, F] and progressions [N, 1]."""
    values, later = load_diabetes(return_X_y=True, scaled=False)
    order = draw.numpy.permutation(len(values))
    raw = torch.tensor(values[order], dtype=torch.float32)
    wanted = torch.tensor(later[order], dtype=torch.float32)[:, None]
    x = (raw - raw.mean(0)) / raw.std(0)
    y = (wanted - wanted.mean()) / wanted.std()
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (raw, y), "unnormalised_targets": (x, wanted)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "misaligned_targets", "wrong_broadcast"),
        *("overfitting", "over_regularization", "wrong_sign", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
