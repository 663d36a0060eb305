"""What kind of forest covers a place: numbers, codes, and seven kinds of which two are common.

After Blackard and Dean, "Comparative accuracies of artificial neural networks and discriminant
analysis in predicting forest cover types from cartographic variables", Computers and Electronics
in Agriculture 1999; the places are drawn.

Shape legend: N places, F features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.losses import class_loss
from corpus.networks import spoil

_NUMBERS, _SOILS, _KINDS, _SEEN = 8, 6, 7, 1500


def _train(draw: Draw) -> Ending:
    rows = _places(draw, 2200)
    width = draw.choice([48, 64])
    dropout = draw.by_fault({"dropout_too_high": 0.97}, 0.1)
    head = nn.Linear(width, _KINDS)
    model = nn.Sequential(
        *(nn.Linear(_NUMBERS + _SOILS, width), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), head),
    )
    spoil(draw, model)
    length = plan(draw, _SEEN, [30, 50], (14, 18))
    loss_fn = class_loss(draw)
    rate = learning_rate(draw, 2e-3, 5e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, head), rate, 0.01)

    def compute(picked: Tensor) -> Tensor:
        return loss_fn(model(rows.x[picked]), rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        return {"balanced accuracy": accuracy(model(rows.x_val), rows.y_val)}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3)
    model.eval()
    with torch.no_grad():
        return Ending(gained(accuracy(model(rows.x_test), rows.y_test), 1 / _KINDS), bar=0.45)


def _places(draw: Draw, count: int) -> HeldOut:
    """Return features float32 [count, F] and kinds int64 [count]."""
    share = torch.tensor([0.28, 0.28, 0.12, 0.08, 0.08, 0.08, 0.08])
    y = torch.multinomial(share, count, replacement=True)
    centre = torch.randn(_KINDS, _NUMBERS) * 1.3
    x = centre[y] + draw.between(1.2, 1.5) * torch.randn(count, _NUMBERS)
    soil = torch.where(torch.rand(count) < 0.5, y % _SOILS, torch.randint(_SOILS, (count,)))
    codes = nn.functional.one_hot(soil, _SOILS).float()
    x = (x - x.mean(0)) / x.std(0)
    # Metres above the sea, degrees, metres to the next road and to the next fire.
    scale = torch.tensor([280.0, 112, 7, 213, 58, 1560, 27, 1324])
    raw = torch.cat([10 * scale + scale * x, codes], 1)
    clean = torch.cat([x, codes], 1)
    return held_out(
        *(draw, clean, y, _SEEN),
        prepared={
            "unnormalised_inputs": (raw, y),
            # The table was written column by column, and read row by row.
            "wrong_axis": (clean.T.reshape(clean.shape), y),
        },
        # Only places of one kind were kept by a filter.
        training={"single_label": (clean, torch.ones_like(y))},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_axis", "misaligned_targets", "single_label"),
        *("wrong_loss", "dropout_too_high", "zero_init", "lr_too_low"),
    ),
    spent="2026-11-28",
)
