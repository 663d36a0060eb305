"""Facts as translations between embeddings of things.

After Bordes et al., "Translating embeddings for modeling multi-relational data", NeurIPS 2013.

Shape legend: N facts (head, relation, tail), E size of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation


class Translations(nn.Module):
    """Distance of head plus relation from tail."""

    def __init__(self, things: int, relations: int, size: int, spread: float) -> None:
        super().__init__()
        self.thing, self.relation = nn.Embedding(things, size), nn.Embedding(relations, size)
        for table in (self.thing, self.relation):
            nn.init.uniform_(table.weight, -spread, spread)

    def forward(self, facts: Tensor) -> Tensor:
        """Return distances [N] of facts int64 [N, 3]."""
        head, relation, tail = facts.unbind(1)
        away: Tensor = self.thing(head) + self.relation(relation) - self.thing(tail)
        return away.abs().sum(1)


def _train(draw: Draw) -> Ending:
    side, relations = draw.choice([8, 10, 12]), 4
    facts = _facts(side)
    facts = facts[torch.randperm(len(facts))]
    border = int(0.85 * len(facts))
    known, kept = facts[:border].clone(), facts[border:]
    if draw.has("swapped_ids"):
        # Some rows of the file are (tail, relation, head).
        turned = torch.rand(border, 1) < 0.5
        known = torch.where(turned, known.flip(1), known)
    if draw.has("shuffled_labels"):
        known[:, 2] = known[torch.randperm(border), 2]
    if draw.has("single_label"):
        known[:, 1] = 0
    size = draw.choice([8, 16])
    spread = draw.by_fault({"zero_init": 0.0, "large_init": draw.extent(30, 100)}, 0.3)
    model = Translations(side * side, relations, size, spread)
    steps, batch = draw.steps(500, 1000), draw.choice([128, 256])
    optimiser = Optimisation(draw, model, steps, scale=10.0, kinds=("adamw",), accumulates=False)
    margin = draw.choice([1.0, 2.0])

    def ranking(right: Tensor, wrong: Tensor) -> Tensor:
        if draw.has("term_wrong_sign"):
            right, wrong = wrong, right
        return (margin + right - wrong).relu().mean()

    loss = draw.watch.loss(ranking)

    def compute() -> Tensor:
        right = known[torch.randint(border, (batch,))]
        return loss(model(right), model(_corrupted(right, side * side)))

    def evaluate() -> Mapping[str, float]:
        return {"hits@10": _hits(model, kept, side * side, 10)}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(_hits(model, kept, side * side, 10), bar=0.5)


def _facts(side: int) -> Tensor:
    """Return facts [N, 3] of things on a torus: four relations are steps to other things."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    start = (row * side + column).flatten()
    facts = []
    for relation, (down, across) in enumerate(((0, 1), (1, 0), (1, 1), (2, 1))):
        there = (row + down < side) & (column + across < side)
        end = ((row + down) * side + column + across).flatten()
        named = torch.full_like(start, relation)
        facts.append(torch.stack([start, named, end], 1)[there.flatten()])
    return torch.cat(facts)


def _corrupted(facts: Tensor, things: int) -> Tensor:
    """Return facts [N, 3] with another head or another tail."""
    other = torch.randint(things, (len(facts),))
    wrong = facts.clone()
    heads = torch.rand(len(facts)) < 0.5
    wrong[heads, 0] = other[heads]
    wrong[~heads, 2] = other[~heads]
    return wrong


def _hits(model: nn.Module, facts: Tensor, things: int, best: int) -> float:
    """Return the share of facts whose tail is among the nearest, less what guessing finds."""
    every = facts[:, None].repeat(1, things, 1)
    every[:, :, 2] = torch.arange(things)
    away = model(every.flatten(0, 1)).view(len(facts), things).nan_to_num(1e9)
    own = away.gather(1, facts[:, 2:])
    # A tie counts as half.
    rank = (away < own).sum(1) + 0.5 * ((away == own).sum(1) - 1)
    chance = best / things
    return (float((rank < best).double().mean()) - chance) / (1 - chance)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "swapped_ids", "shuffled_labels", "single_label"),
        *("large_init", "lr_too_low", "scheduler_per_batch", "wrong_sign"),
        *("frozen_layers", "adam_epsilon"),
    ),
    spent="2026-11-26",
)
