"""Embeddings of digits by triplets: nearer to one of the same kind than to one of another.

After Schroff et al., "FaceNet", CVPR 2015.

Shape legend: N triplets, E size of an embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, gained, run_loop
from corpus.optimisation import Optimisation


def _train(draw: Draw) -> Ending:
    images, numbers = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    x = torch.tensor(images / 8 - 1, dtype=torch.float32)[order]
    y = torch.tensor(numbers)[order]
    kept = draw.choice([300, 600, 1200])
    labels = y[:kept].clone()
    if draw.has("shuffled_labels"):
        labels = labels[torch.randperm(kept)]
    size = draw.choice([8, 16])
    model = nn.Sequential(nn.Linear(64, draw.choice([48, 96])), nn.ReLU(), nn.LazyLinear(size))
    model(x[:2])
    networks.spoil(draw, model)
    steps = draw.steps(250, 600)
    optimiser = Optimisation(
        draw, model, steps, scale=1.0, kinds=("adam", "adamw", "momentum"), accumulates=False
    )
    loss = draw.watch.loss(_loss(draw))
    members = [(labels == one).nonzero()[:, 0] for one in range(10)]
    rows = draw.choice([32, 64])

    def compute() -> Tensor:
        kinds = torch.rand(rows, 10).argsort(1)[:, :2].tolist()
        picked = torch.tensor(
            [[_one(members[own]), _one(members[own]), _one(members[other])] for own, other in kinds]
        )
        anchor, near, far = (F.normalize(model(x[one]), dim=1) for one in picked.unbind(1))
        return loss(anchor, near, far)

    def recall() -> float:
        inner = F.normalize(model(x), dim=1)
        nearest = (inner[kept:] @ inner[:kept].T).nan_to_num(-2).argmax(1)
        return float((y[:kept][nearest] == y[kept:]).double().mean())

    def evaluate() -> Mapping[str, float]:
        return {"recall@1": recall()}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(gained(_separation(model, x[kept:], y[kept:]), 0.5), bar=0.7, margin=0.15)


def _loss(draw: Draw) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of anchors, positives and negatives, all [N, E]."""
    margin = draw.choice([0.2, 0.5])
    if draw.has("collapse"):
        return _of_positives
    sign = -1.0 if draw.has("term_wrong_sign") else 1.0
    usual = nn.TripletMarginLoss(margin=margin)
    if draw.chance(0.4) and sign > 0:
        return usual

    def by_hand(anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        gap = (anchor - near).square().sum(1) - (anchor - far).square().sum(1)
        return (sign * gap + margin).relu().mean()

    return by_hand


def _of_positives(anchor: Tensor, near: Tensor, _: Tensor) -> Tensor:
    """Return the loss without its negatives, which a constant embedding makes 0."""
    return (anchor - near).square().sum(1).mean()


def _one(members: Tensor) -> int:
    return int(members[torch.randint(len(members), ())])


def _separation(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of triplets of which the positive is nearer than the negative."""
    inner = F.normalize(model(x), dim=1).double()
    alike = inner @ inner.T
    same = y[:, None] == y[None, :]
    anchors = torch.randint(len(y), (4000,))
    near = torch.multinomial(same[anchors].double(), 1)[:, 0]
    far = torch.multinomial((~same[anchors]).double(), 1)[:, 0]
    return float((alike[anchors, near] > alike[anchors, far]).double().mean())


FAMILY = Family(
    _train,
    (
        *(
            "term_wrong_sign",
            "collapse",
            "shuffled_labels",
        ),
        *("lr_too_low", "wrong_sign", "scheduler_to_zero", "adam_epsilon"),
    ),
    spent="2026-11-26",
)
