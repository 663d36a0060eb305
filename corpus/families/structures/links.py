"""Which papers cite each other: a graph autoencoder whose decoder is a product.

After Kipf and Welling, "Variational graph auto-encoders", 2016; the papers are drawn.

Shape legend: V papers, F words, E citations.
"""

from __future__ import annotations

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_PAPERS, _WORDS, _FIELDS = 240, 40, 8


class Encoder(nn.Module):
    """Embeddings [V, 16] of papers float32 [V, F] with a normalised adjacency [V, V]."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        deep = 12 if draw.has("over_smoothing") else 0
        self.first = nn.Linear(_WORDS, width)
        self.between = nn.ModuleList(nn.Linear(width, width) for _ in range(deep))
        self.last = nn.Linear(width, 16)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the embeddings."""
        x = torch.relu(adjacency @ self.first(x))
        for one in self.between:
            x = torch.relu(adjacency @ one(x))
        found: Tensor = adjacency @ self.last(x)
        return found


def _train(draw: Draw) -> Ending:
    x, edges, held, others = _papers(draw)
    x, edges = _spoilt(draw, x, edges)
    adjacency = torch.eye(_PAPERS)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    if draw.has("wrong_adjacency"):
        # Numbers of papers of another table.
        adjacency = adjacency[torch.randperm(_PAPERS)]
    degree = adjacency.sum(1)
    adjacency = adjacency / (degree[:, None] * degree).sqrt()
    model = Encoder(draw, draw.choice([32, 48]))
    networks.spoil(draw, model)
    steps = draw.steps(120, 180)
    rate = learning_rate(draw, 8e-3, 1.5e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    criterion = nn.BCEWithLogitsLoss()
    draw.watch.loss(criterion)
    draw.watch.begin(model, optimizer)
    for step in range(steps):
        model.train()
        optimizer.zero_grad()
        found = model(x, adjacency)
        apart = torch.randint(_PAPERS, edges.shape)
        pairs = torch.cat([edges, apart], 1)
        logits = (found[pairs[0]] * found[pairs[1]]).sum(1)
        if draw.has("sigmoid_before_logits"):
            # A probability of at least a half, and a loss of logits.
            logits = -logits.sigmoid()
        label = torch.cat([torch.ones(edges.shape[1]), torch.zeros(edges.shape[1])])
        loss = criterion(logits, label)
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % 40 == 39:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("auc", _area(model(x, adjacency), held, others))
    model.eval()
    with torch.no_grad():
        found = model(x, adjacency)
    if not found.isfinite().all():
        return Ending(float("nan"), bar=0.55)
    return Ending(gained(_area(found, held, others), 1 / 2), bar=0.55)


def _area(found: Tensor, held: Tensor, others: Tensor) -> float:
    """Return the area under the ROC curve of held-out citations and of other pairs."""
    pairs = torch.cat([held, others], 1)
    scores = (found[pairs[0]] * found[pairs[1]]).sum(1).nan_to_num(0.0)
    label = torch.cat([torch.ones(held.shape[1]), torch.zeros(others.shape[1])])
    return float(roc_auc_score(label.numpy(), scores.numpy()))


def _spoilt(draw: Draw, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Return papers with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Counts of words of whole papers.
            "unnormalised_inputs": (1e4 * x, edges),
            # One end of each citation was sorted, and the other one was not.
            "shuffled_labels": (
                x,
                torch.stack([edges[0], edges[1, torch.randperm(len(edges[1]))]]),
            ),
            # Numbers that begin with 1 in the file.
            "off_by_one": (x, torch.stack([edges[0], (edges[1] + 1) % _PAPERS])),
        },
        (x, edges),
    )


def _papers(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return words [V, F], citations int64 [2, E], held-out ones, and pairs without one."""
    field = torch.randint(_FIELDS, (_PAPERS,))
    words = torch.rand(_PAPERS, _WORDS) < 0.08
    words |= (torch.arange(_WORDS) % _FIELDS == field[:, None]) & (
        torch.rand(_PAPERS, _WORDS) < draw.between(0.35, 0.5)
    )
    same = field[:, None] == field
    cited = (torch.rand(_PAPERS, _PAPERS) < torch.where(same, 0.2, 0.002)).triu(1)
    edges, none = cited.nonzero().T, (~cited).triu(1).nonzero().T
    order = torch.randperm(edges.shape[1])
    part = edges.shape[1] // 5
    apart = none[:, torch.randperm(none.shape[1])[:part]]
    return words.float(), edges[:, order[part:]], edges[:, order[:part]], apart


FAMILY = Family(
    _train,
    (
        *("wrong_adjacency", "over_smoothing", "off_by_one"),
        *("shuffled_labels", "sigmoid_before_logits", "unnormalised_inputs", "zero_init"),
        *("wrong_parameters", "lr_too_low", "lr_too_high", "wrong_sign"),
    ),
    spent="2026-11-28",
)
