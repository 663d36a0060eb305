"""How old abalones are, from their size and weight: batch norm, absolute errors, and a step rate.

After Nash et al., "The population biology of abalone in Tasmania", Sea Fisheries Division 1994;
the abalones are drawn.

Shape legend: N abalones, F measures.
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
from corpus.loop import explained
from corpus.networks import spoil

_FEATURES, _SEEN = 8, 900


class Net(nn.Module):
    """The standardised age [N, 1] of measures float32 [N, F]."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(_FEATURES, width), nn.BatchNorm1d(width)
        self.fc2, self.bn2 = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.fc3 = nn.Linear(width, 1)
        self.linear = draw.has("missing_activation")

    def forward(self, x: Tensor) -> Tensor:
        """Return the age."""
        for layer, norm in ((self.fc1, self.bn1), (self.fc2, self.bn2)):
            x = norm(layer(x))
            x = x if self.linear else F.relu(x)
        age: Tensor = self.fc3(x)
        return age


def _train(draw: Draw) -> Ending:
    rows = _abalones(draw, 1300)
    model = Net(draw, draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [25, 30], (14, 18))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.fc3), rate, 1e-5)
    criterion = draw.watch.loss(F.l1_loss)
    steps = torch.optim.lr_scheduler.StepLR(optimizer, 6, 0.5)

    def compute(picked: Tensor) -> Tensor:
        age, known = model(rows.x[picked]), rows.y[picked]
        # The ages of a column: [B, 1] against [B] is [B, B].
        return criterion(age, known[:, 0] if draw.has("wrong_broadcast") else known)

    def evaluate() -> Mapping[str, float]:
        return {"val_mae": float((model(rows.x_val) - rows.y_val).abs().mean())}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, per_epoch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(explained(model(rows.x_test), rows.y_test), bar=0.5)


def _abalones(draw: Draw, count: int) -> HeldOut:
    """Return standardised measures float32 [count, F] and ages [count, 1]."""
    size = torch.randn(count, 1)
    x = 0.8 * size + 0.6 * torch.randn(count, _FEATURES)
    sex = torch.randint(3, (count,)) - 1.0
    x[:, 0] = sex
    age = 0.8 * x[:, 1] + 1.2 * (x[:, 2] - x[:, 3]).abs() - 0.9 * (x[:, 4] * x[:, 0])
    age = age + draw.between(0.2, 0.4) * torch.randn(count)
    y = ((age - age.mean()) / age.std())[:, None]
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # The weights are in milligrams.
            "unnormalised_inputs": (x * torch.tensor([1.0, 1, 1, 1, 1, 2e4, 3e4, 9e4]), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("missing_activation", "wrong_broadcast", "scheduler_per_batch", "misaligned_targets"),
        *("shuffled_labels", "wrong_sign", "weight_decay_too_high", "duplicated_rows"),
        *("lr_too_high",),
    ),
    spent="2026-11-28",
)
