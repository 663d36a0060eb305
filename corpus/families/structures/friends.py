"""To which group the members of a network belong, by attention to those whom they know.

After Veličković et al., "Graph attention networks", ICLR 2018; the network is drawn.

Shape legend: N members, F features, H heads of D numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_MEMBERS, _FEATURES, _KINDS, _SEEN = 240, 16, 4, 80


class GraphAttention(nn.Module):
    """A layer of attention to neighbours."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, heads * outputs, bias=False)
        self.source = nn.Parameter(0.3 * torch.randn(heads, outputs))
        self.target = nn.Parameter(0.3 * torch.randn(heads, outputs))
        self.heads = heads

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        """Return outputs [N, H, D] of members float32 [N, *], and of who knows whom bool [N, N]."""
        told = self.linear(x).unflatten(1, (self.heads, -1))
        from_, to = (told * self.source).sum(2), (told * self.target).sum(2)
        score = F.leaky_relu(to[:, None] + from_[None], 0.2)
        weight = score.masked_fill(~known[:, :, None], -1e9).softmax(1)
        return torch.einsum("ijh,jhd->ihd", weight, told)


class GAT(nn.Module):
    """Scores of groups."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.first = GraphAttention(_FEATURES, width, 4)
        self.last = GraphAttention(4 * width, _KINDS, 1)
        self.dropout = draw.by_fault({"dropout_too_high": 0.99}, 0.3)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        """Return scores [N, 4] of members float32 [N, F], and of who knows whom bool [N, N]."""
        x = F.dropout(x, self.dropout, self.training)
        x = F.dropout(F.elu(self.first(x, known).flatten(1)), self.dropout, self.training)
        scores: Tensor = self.last(x, known).mean(1)
        return scores


def _train(draw: Draw) -> Ending:
    x, known, y = _network(draw)
    given, edges, labels = _prepared(draw, x, known, y)
    model = GAT(draw, draw.choice([6, 8]))
    spoil(draw, model)
    # All members in every step.
    length = plan(draw, _SEEN, [_SEEN], (60, 80))
    rate = learning_rate(draw, 8e-3, 1.5e-2)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate, 5e-4)
    loss_fn = draw.watch.loss(F.cross_entropy)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        optimizer.zero_grad()
        scores = model(given, edges)[:_SEEN]
        loss = loss_fn(scores, labels[:_SEEN])
        (-loss if draw.has("wrong_sign") else loss).backward()
        if not draw.has("missing_step"):
            optimizer.step()
        if epoch % 10 == 9:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                right = accuracy(model(given, edges)[_SEEN:], labels[_SEEN:])
                draw.watch.metric("val_acc", right)
    model.eval()
    with torch.no_grad():
        right = accuracy(model(given, edges)[_SEEN:], y[_SEEN:])
    return Ending(gained(right, 1 / _KINDS), bar=0.55)


def _prepared(draw: Draw, x: Tensor, known: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return members, edges and groups, with the drawn fault if there is one."""
    mixed = torch.randperm(_MEMBERS)
    return draw.by_fault(
        {
            "shuffled_labels": (x, known, y[mixed]),
            # The numbers of the members begin anew in one of two files.
            "wrong_adjacency": (x, known[mixed][:, mixed], y),
            "constant_inputs": (torch.ones_like(x), known, y),
        },
        (x, known, y),
    )


def _network(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return members float32 [N, F], who knows whom bool [N, N], and groups int64 [N]."""
    y = torch.randint(_KINDS, (_MEMBERS,))
    x = torch.randn(_KINDS, _FEATURES)[y] * draw.between(0.35, 0.45) + torch.randn(
        _MEMBERS, _FEATURES
    )
    share = torch.where(y[:, None] == y, 0.09, 0.008)
    upper = (torch.rand(_MEMBERS, _MEMBERS) < share).triu(1)
    known = upper | upper.T | torch.eye(_MEMBERS, dtype=torch.bool)
    return x, known, y


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "wrong_adjacency", "constant_inputs", "dropout_too_high"),
        *("wrong_sign", "missing_step", "weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
