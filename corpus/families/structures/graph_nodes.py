"""Classes of the nodes of a graph, by graph convolutions with a dense adjacency matrix.

After Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
ICLR 2017.

Shape legend: N nodes, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import losses, networks, optimisation
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, run_loop


class GraphNet(nn.Module):
    """Graph convolutions; every node sees its neighbours."""

    def __init__(self, sizes: list[int], adjacency: Tensor, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(one, other) for one, other in pairwise(sizes))
        self.register_buffer("adjacency", adjacency)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, C] of all nodes [N, F]."""
        for place, layer in enumerate(self.layers):
            if place:
                x = F.dropout(x.relu(), self.dropout, self.training)
            x = self.adjacency @ layer(x)
        return x


def _train(draw: Draw) -> Ending:
    nodes, classes = draw.whole(200, 500), draw.choice([3, 4, 5, 6])
    y = torch.arange(nodes) % classes
    same = y[:, None] == y[None, :]
    degree = draw.between(6, 12)
    share = torch.where(same, 0.7 * classes, 0.3 * classes / (classes - 1)) * degree / nodes
    edges = (torch.rand(nodes, nodes) < share).float().triu(1)
    if draw.has("wrong_adjacency"):
        # The rows were sorted after the edges had been numbered.
        order = torch.randperm(nodes)
        edges = edges[order][:, order]
    adjacency = _normalised(edges + edges.T)
    features = draw.choice([16, 32, 64])
    centres = torch.randn(classes, features)
    x = draw.between(0.15, 0.3) * centres[y] + torch.randn(nodes, features)
    depth = draw.choice([2, 2, 3])
    if draw.has("over_smoothing"):
        depth = draw.amount.randint(20, 30)
    dropout = draw.amount.uniform(0.95, 0.99) if draw.has("dropout_too_high") else 0.3
    sizes = [features, *[draw.choice([16, 32, 64])] * (depth - 1), classes]
    model = GraphNet(sizes, adjacency, dropout)
    networks.spoil(draw, model)
    order = torch.randperm(nodes)
    known, kept = order[: nodes // 3], order[nodes // 3 :]
    labels = _labels(draw, y, classes)
    steps = draw.steps(100, 400)
    optimiser = optimisation.Optimisation(
        draw, model, steps, scale=3.0, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    loss = losses.class_loss(draw)

    def compute() -> Tensor:
        return loss(model(x)[known], labels[known])

    def evaluate() -> Mapping[str, float]:
        return {"val_accuracy": accuracy(model(x)[kept], y[kept])}

    chosen = evaluate if draw.chance(0.8) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        right = accuracy(model(x)[kept], y[kept])
    return Ending(gained(right, 1 / classes), bar=0.6)


def _labels(draw: Draw, y: Tensor, classes: int) -> Tensor:
    """Return the labels of the training, wrong if that is the fault."""
    if draw.has("shuffled_labels"):
        return y[torch.randperm(len(y))]
    if draw.has("off_by_one"):
        return (y + 1) % classes
    return y


def _normalised(edges: Tensor) -> Tensor:
    """Return the adjacency [N, N] with self-loops, normalised symmetrically by the degrees."""
    looped = edges + torch.eye(len(edges))
    root = looped.sum(1).rsqrt()
    return root[:, None] * looped * root[None, :]


FAMILY = Family(
    _train,
    (
        *("wrong_adjacency", "over_smoothing", "shuffled_labels", "off_by_one"),
        *("dropout_too_high", "wrong_loss", "relu_before_loss", "scheduler_to_zero"),
        *("lr_too_high", "lr_too_low", "wrong_sign", "zero_init", "adam_epsilon"),
    ),
    spent="2026-11-25",
)
