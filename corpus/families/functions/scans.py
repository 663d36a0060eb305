"""What each point of a laser scan belongs to: a network of points, and what all of them say.

After Qi, Su, Mo and Guibas, "PointNet: deep learning on point sets for 3D classification and
segmentation", CVPR 2017; the scans are drawn.

Shape legend: N scans of P points, C parts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import spoil

_POINTS, _PARTS, _SEEN = 40, 3, 300


class PartNet(nn.Module):
    """Scores of parts."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU())
        self.both = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU())
        self.last = nn.Linear(size, _PARTS)

    def forward(self, points: Tensor) -> Tensor:
        """Return scores [N, P, C] of points float32 [N, P, 3]."""
        told = self.each(points)
        whole = told.amax(1, keepdim=True).expand_as(told)
        scores: Tensor = self.last(self.both(torch.cat([told, whole], 2)))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _scans(draw, 450)
    model = PartNet(draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [10, 12], (14, 18))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    loss_fn = draw.watch.loss(F.nll_loss)

    def compute(batch: Tensor) -> Tensor:
        scores = model(rows.x[batch])
        log = scores.log_softmax(1 if draw.has("softmax_wrong_axis") else 2)
        return loss_fn(log.flatten(0, 1), rows.y[batch].flatten())

    def evaluate() -> Mapping[str, float]:
        return {"mean_class_accuracy": _right(model(rows.x_val), rows.y_val)}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3)
    model.eval()
    with torch.no_grad():
        return Ending(gained(_right(model(rows.x_test), rows.y_test), 1 / _PARTS), bar=0.55)


def _right(scores: Tensor, parts: Tensor) -> float:
    """Return the mean over the parts of the share of their points that are right."""
    return accuracy(scores.flatten(0, 1), parts.flatten())


def _scans(draw: Draw, count: int) -> HeldOut:
    """Return points float32 [count, P, 3] in metres and parts int64 [count, P]."""
    y = torch.randint(_PARTS, (count, _POINTS))
    high = 0.8 + 1.2 * torch.rand(count, 1)
    wide = 0.5 + torch.rand(count, 1)
    u, v = torch.rand(2, count, _POINTS)
    turn = 6.28 * v
    # A foot below, a stem in the middle, a shade above: of lamps of any size.
    radius = torch.where(y == 0, wide * u, torch.where(y == 1, 0.08, wide * (1.1 - 0.5 * u)))
    up = torch.where(y == 0, 0.05, torch.where(y == 1, 0.7 * u, 0.55 + 0.45 * u)) * high
    x = torch.stack([radius * turn.cos(), radius * turn.sin(), up], 2)
    x = x + draw.between(0.04, 0.07) * torch.randn(x.shape)
    centred = x - x.mean(1, keepdim=True)
    # Where each scanner stood, in millimetres.
    raw = 1000 * x + 8e4 * torch.rand(count, 1, 3)
    order = torch.rand(count, _POINTS).argsort(1)
    sorted_ = centred.gather(1, centred[:, :, 2:].argsort(1).expand_as(centred))
    return held_out(
        *(draw, centred, y, _SEEN),
        prepared={
            "unnormalised_inputs": (raw, y),
            # Points are sorted by their height, and their parts are not.
            "misaligned_targets": (sorted_, y),
            "shuffled_labels": (centred, y.gather(1, order)),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "misaligned_targets", "softmax_wrong_axis"),
        *("dead_relu", "wrong_sign", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
