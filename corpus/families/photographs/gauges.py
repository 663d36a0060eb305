"""What a gauge says, from its picture: sine and cosine of the needle's angle.

After Beyer, Hermans and Leibe, "Biternion nets: continuous head pose regression from discrete
training labels", GCPR 2015; the pictures are drawn.

Shape legend: N pictures of 14 x 14 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_SIDE, _SEEN = 14, 800


def _train(draw: Draw) -> Ending:
    rows = _gauges(draw, 1200)
    width = draw.choice([8, 12])
    head = nn.Linear(48, 2)
    layer: type[nn.Module] = nn.Sigmoid if draw.has("vanishing") else nn.ReLU
    deep = [nn.Linear(48, 48), layer()] * (8 if draw.has("vanishing") else 1)
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, 2, 1), layer(), nn.Conv2d(width, 2 * width, 3, 2, 1), layer()),
        *(nn.Flatten(), nn.Linear(32 * width, 48), layer(), *deep, head),
    )
    if draw.has("wrong_output_activation"):
        model.append(nn.Sigmoid())
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)

    def compute(batch: Tensor) -> Tensor:
        pictures = rows.x[batch]
        if draw.has("augmented_without_targets"):
            # The dial may be turned, the angle stays.
            pictures = pictures.rot90(int(torch.randint(4, ())), (2, 3))
        loss: Tensor = criterion(model(pictures), rows.y[batch])
        return loss

    def evaluate() -> Mapping[str, float]:
        said, wanted = model(rows.x_val), rows.y_val
        turn = said[:, 0].atan2(said[:, 1]) - wanted[:, 0].atan2(wanted[:, 1])
        return {"mean_error_degrees": float(turn.sin().atan2(turn.cos()).rad2deg().abs().mean())}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.6)


def _gauges(draw: Draw, count: int) -> HeldOut:
    """Return pictures float32 [count, 1, 14, 14], and sines and cosines [count, 2]."""
    degrees = 360 * torch.rand(count)
    angle = degrees.deg2rad()[:, None, None]
    place = torch.arange(_SIDE) - (_SIDE - 1) / 2
    right, up = place - 0.5 * torch.randn(count, 1, 1), -place[:, None]
    along = right * angle.sin() + up * angle.cos()
    beside = right * angle.cos() - up * angle.sin()
    needle = ((along > 0) & (along < 6) & (beside.abs() < 0.9)).float()
    rim = ((torch.hypot(right, up) - 6.5).abs() < 0.6).float()
    x = needle + 0.5 * rim + draw.between(0.1, 0.25) * torch.randn(count, _SIDE, _SIDE)
    x = ((x - x.mean()) / x.std())[:, None]
    y = torch.stack([degrees.deg2rad().sin(), degrees.deg2rad().cos()], 1)
    return held_out(
        *(draw, x, y, _SEEN),
        # `sin` of degrees.
        prepared={"radians_forgotten": (x, torch.stack([degrees.sin(), degrees.cos()], 1))},
    )


FAMILY = Family(
    _train,
    (
        *("radians_forgotten", "augmented_without_targets", "misaligned_targets"),
        *("constant_inputs", "wrong_output_activation", "vanishing", "zero_init"),
        *("same_batch", "not_in_optimizer", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
