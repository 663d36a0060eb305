"""A graph convolutional network of documents that cite each other.

Settings: Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
ICLR 2017: two layers with 16 hidden units, dropout of 0.5, Adam with a rate of 0.01, weight decay
5e-4 on the first layer, 200 epochs of the whole graph, 20 labels per class, rows of features that
sum to 1. The graph is synthetic, of seven classes as Cora.

Shape legend: N nodes, F words, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_NODES, _CLASSES, _WORDS, _EPOCHS = 1050, 7, 300, 200


class GCN(nn.Module):
    """Scores [N, C] of nodes with features [N, F] and a propagation matrix [N, N]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_WORDS, 16, bias=False)
        self.second = nn.Linear(16, _CLASSES, bias=False)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, propagation: Tensor) -> Tensor:
        """Classify all nodes."""
        x = F.relu(propagation @ self.first(self.dropout(x)))
        scores: Tensor = propagation @ self.second(self.dropout(x))
        return scores


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_EPOCHS)
    draw.epoch = 1
    x, y, edges = _graph(draw.numpy)
    if draw.has("wrong_adjacency"):
        # Numbers of the nodes in the file, not of the rows.
        order = torch.randperm(_NODES)
        edges = edges[order][:, order]
    linked = edges + torch.eye(_NODES)
    # Without the degrees, nodes are sums of their neighbours.
    scale = linked.sum(1).rsqrt()
    propagation = scale[:, None] * linked * scale
    train = torch.cat([torch.nonzero(y == one)[:20, 0] for one in range(_CLASSES)])
    validation, test = torch.arange(350, 700), torch.arange(700, _NODES)
    targets = y.roll(1) if draw.has("misaligned_targets") else y
    model = GCN()
    rate = 1e-5 if draw.has("lr_too_low") else 0.01
    groups = [
        {"params": model.first.parameters(), "weight_decay": 5e-4},
        {"params": model.second.parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=rate)
    loss = draw.watch.loss(F.cross_entropy)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        found = model(x, propagation)[validation]
        return {"val_acc": float((found.argmax(1) == y[validation]).float().mean())}

    for epoch in range(_EPOCHS):
        model.train()
        optimizer.zero_grad()
        loss(model(x, propagation)[train], targets[train]).backward()
        optimizer.step()
        if epoch % 10 == 9:
            report_metrics(draw, model, measure)
    with evaluation(draw, model):
        reached = accuracy(model(x, propagation)[test], y[test])
    return Ending(gained(reached, 1 / _CLASSES), bar=0.6)


def _graph(source: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return words [N, F] whose rows sum to 1, classes [N], and symmetric links [N, N]."""
    y = source.permutation(np.arange(_NODES) % _CLASSES)
    same = y[:, None] == y
    linked = source.random((_NODES, _NODES)) < np.where(same, 0.024, 0.0009)
    linked = np.triu(linked, 1)
    usual = source.random(_WORDS) * 0.02
    topics = usual + (source.random((_CLASSES, _WORDS)) < 0.06) * 0.08
    words = (source.random((_NODES, _WORDS)) < topics[y]).astype("float32")
    words /= np.maximum(words.sum(1, keepdims=True), 1)
    edges = torch.tensor((linked | linked.T).astype("float32"))
    return torch.tensor(words), torch.tensor(y), edges


FAMILY = Family(_train, ("wrong_adjacency", "misaligned_targets", "lr_too_low"), spent="2026-11-25")
