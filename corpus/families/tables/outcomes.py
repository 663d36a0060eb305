"""How patients fare, from columns that attend to each other: a transformer of a table's features.

After Gorishniy et al., "Revisiting deep learning models for tabular data", NeurIPS 2021; the
patients are drawn.

Shape legend: N patients, F columns, D numbers of a token, C outcomes.
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

_COLUMNS, _OUTCOMES, _SEEN = 7, 3, 900


class FeatureTransformer(nn.Module):
    """Scores of outcomes, from a token that attends to those of the columns."""

    def __init__(self, draw: Draw, size: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(_COLUMNS, size) * size**-0.5)
        self.bias = nn.Parameter(torch.randn(_COLUMNS, size) * size**-0.5)
        self.cls = nn.Parameter(torch.randn(1, 1, size) * size**-0.5)
        layer = nn.TransformerEncoderLayer(
            *(size, 4, 2 * size, dropout),
            # Without it, each column attends to that of other patients.
            batch_first=not draw.has("wrong_axis"),
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, _OUTCOMES)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [N, C] of columns float32 [N, F]."""
        tokens = x[:, :, None] * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1)
        scores: Tensor = self.head(self.encoder(tokens)[:, 0].relu())
        return scores


def _train(draw: Draw) -> Ending:
    rows = _patients(draw, 1300)
    model = FeatureTransformer(
        draw, draw.choice([24, 32]), draw.by_fault({"dropout_too_high": 0.95}, 0.0)
    )
    length = plan(draw, _SEEN, [30, 36], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adamw", trained(draw, model, model.head), rate, 1e-4)
    steps = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=30)
    loss = draw.watch.loss(F.cross_entropy)

    def compute(batch: Tensor) -> Tensor:
        scores = model(rows.x[batch])
        if draw.has("relu_before_loss"):
            scores = -scores.relu()
        return loss(scores, rows.y[batch])

    def evaluate() -> Mapping[str, float]:
        return {"dev/acc": accuracy(model(rows.x_val), rows.y_val)}

    fit(
        *(draw, model, optimizer, length, compute),
        evaluate=evaluate if draw.chance(0.7) else None,
        every=3,
        clip=1.0,
        per_batch=steps,
    )
    model.eval()
    with torch.no_grad():
        reached = accuracy(model(rows.x_test), rows.y_test)
    return Ending(gained(reached, 1 / _OUTCOMES), bar=0.5)


def _patients(draw: Draw, count: int) -> HeldOut:
    """Return standardised columns float32 [N, F] and outcomes int64 [N]."""
    x = torch.randn(count, _COLUMNS)
    first = x[:, 0] + 0.8 * x[:, 1] * x[:, 2]
    second = x[:, 3].abs() * 1.3 - x[:, 4]
    noise = draw.between(0.1, 0.3) * torch.randn(count, 3)
    y = (torch.stack([first, second, -first + 0.4], 1) + noise).argmax(1)
    return held_out(draw, x, y, _SEEN)


FAMILY = Family(
    _train,
    (
        *("wrong_axis", "shuffled_labels", "relu_before_loss", "dropout_too_high"),
        *("frozen_layers", "weight_decay_too_high", "lr_too_low", "lr_too_high"),
        *("duplicated_rows", "wrong_sign"),
    ),
    spent="2026-11-28",
)
