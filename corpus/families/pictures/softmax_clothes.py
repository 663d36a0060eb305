"""Clothes by a single layer: softmax regression with a loss and a step that the script writes.

After Zhang et al., "Dive into deep learning", chapter 4, with the pictures of Xiao, Rasul and
Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 196 pixels, C kinds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_PIXELS, _KINDS, _SEEN = 196, 10, 1500


def _softmax(scores: Tensor) -> Tensor:
    powers = scores.exp()
    return powers / powers.sum(1, keepdim=True)


def _cross_entropy(found: Tensor, y: Tensor) -> Tensor:
    return -found[torch.arange(len(y)), y].log().mean()


def _train(draw: Draw) -> Ending:
    rows = _pictures(draw)
    layer = nn.Linear(_PIXELS, _KINDS)
    net = nn.Sequential(nn.Flatten(), layer)
    spread = draw.by_fault({"large_init": 30.0}, 0.01)
    with torch.no_grad():
        layer.weight.normal_(0, spread)
        layer.bias.zero_()
    length = plan(draw, _SEEN, [25, 30], (10, 14))
    updater = torch.optim.SGD(net.parameters(), lr=learning_rate(draw, 0.05, 0.1))
    loss_fn = draw.watch.loss(_cross_entropy)
    draw.watch.begin(net, updater)
    for epoch in range(length.epochs):
        order = torch.randperm(_SEEN)
        if draw.has("not_shuffled"):
            order = rows.y.argsort(stable=True)
        if draw.has("same_batch"):
            order = torch.arange(length.size).repeat(length.batches)
        for picked in order.split(length.size)[: length.batches]:
            found = _softmax(net(rows.x[picked]))
            loss = loss_fn(found, rows.y[picked])
            updater.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            updater.step()
        if epoch % 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("test acc", accuracy(net(rows.x_val), rows.y_val))
    with torch.no_grad():
        return Ending(gained(accuracy(net(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.55)


def _pictures(draw: Draw) -> HeldOut:
    """Return pictures float32 [2200, 1, 14, 14] of values of 0 to 1, and kinds int64 [2200]."""
    order = torch.tensor(draw.numpy.permutation(6000)[:2200])
    x, y = (one[order] for one in clothes(6000))
    x = (x - x.min()) / (x.max() - x.min())
    mixed = x.flatten(1).T.reshape(x.shape)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (255 * x, y), "wrong_axis": (mixed, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_axis", "shuffled_labels"),
        *("not_shuffled", "same_batch", "large_init", "wrong_sign", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
