"""Joints of a body in space from those in a picture: residual blocks of dense layers.

After Martinez et al., "A simple yet effective baseline for 3d human pose estimation", ICCV 2017;
the bodies are drawn.

Shape legend: N bodies of J joints.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_JOINTS, _SEEN = 8, 1000


class Block(nn.Module):
    """Two dense layers beside their input."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]
            layers += [nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs [N, *] of the same shape."""
        more: Tensor = self.layers(x)
        return x + more


def _train(draw: Draw) -> Ending:
    rows = _bodies(draw, 1400)
    width = draw.choice([48, 64])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, 0.05)
    head = nn.Linear(width, _JOINTS)
    if draw.has("wrong_output_activation"):
        # Depths behind the hip are negative, and all are above 1 or below -1 at times.
        last: nn.Module = nn.ReLU()
    else:
        last = nn.Identity()
    model = nn.Sequential(
        *(nn.Linear(2 * _JOINTS, width), nn.ReLU()),
        *(Block(width, dropout), Block(width, dropout), head, last),
    )
    spoil(draw, model)
    length = plan(draw, _SEEN, [32, 40], (10, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)

    def compute(picked: Tensor) -> Tensor:
        loss: Tensor = criterion(model(rows.x[picked]), rows.y[picked])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"mpjpe": float((model(rows.x_val) - rows.y_val).abs().mean())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, clip=1.0, per_epoch=slower)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.4)


def _bodies(draw: Draw, count: int) -> HeldOut:
    """Return standardised places in pictures [count, 2 J], and standardised depths [count, J]."""
    angle = 0.5 * torch.randn(count, _JOINTS)
    bend = 0.6 * torch.randn(count, _JOINTS).abs()
    turn = 0.2 * torch.randn(count, 1)
    side = (angle.cos() * bend.cos()).cumsum(1)
    high = angle.sin().cumsum(1)
    deep = (bend.sin() * angle.cos()).cumsum(1)
    across = side * turn.cos() - deep * turn.sin()
    depth = side * turn.sin() + deep * turn.cos()
    x = torch.cat([across, high], 1) + draw.between(0.01, 0.03) * torch.randn(count, 2 * _JOINTS)
    x, y = (x - x.mean(0)) / x.std(0), (depth - depth.mean(0)) / depth.std(0)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Pixels and millimetres, as they are in the files.
            "unnormalised_targets": (x, 4000 + 700 * y),
            "wrong_axis": (x.T.reshape(x.shape), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "unnormalised_targets", "wrong_output_activation"),
        *("dropout_too_high", "same_batch", "zero_init"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
