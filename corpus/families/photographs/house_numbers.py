"""Both digits of a house number: one body, a head for each digit, and the sum of two losses.

After Goodfellow et al., "Multi-digit number recognition from street view imagery using deep
convolutional neural networks", ICLR 2014; the digits are those of scikit-learn.

Shape legend: N pictures of 8 x 16 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.datasets import load_digits
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained

_SEEN = 1000


class HouseNumbers(nn.Module):
    """Scores of both digits, float32 [N, 10] each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * width, 64), nn.ReLU()),
        )
        self.tens, self.units = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of pictures float32 [N, 1, 8, 16]."""
        told = self.body(x)
        return self.tens(told), self.units(told)


def _train(draw: Draw) -> Ending:
    x, y = _numbers(draw, 1400)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model = HouseNumbers(draw.choice([12, 16]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (9, 11))
    rate = learning_rate(draw, 2e-3, 4e-3)
    weights = trained(draw, model, model.units)
    optimizer = optimizer_of(draw, "adam", weights, rate)
    loss = draw.watch.loss(F.cross_entropy)

    def compute(rows: Tensor) -> Tensor:
        tens, units = model(seen[rows])
        first, second = loss(tens, known[rows, 0]), loss(units, known[rows, 1])
        if draw.has("term_left_out"):
            return first
        return first - second if draw.has("term_wrong_sign") else first + second

    def evaluate() -> Mapping[str, float]:
        return {
            name: accuracy(scores, y[_SEEN:, place])
            for place, (name, scores) in enumerate(
                zip(("acc_tens", "acc_units"), model(x[_SEEN:]), strict=True)
            )
        }

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, every=3)
    model.eval()
    with torch.no_grad():
        return Ending(gained(min(evaluate().values()), 1 / 10), bar=0.65)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return pictures with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            "swapped_heads": (x, y.flip(1)),
            "shuffled_labels": (x, y[torch.randperm(len(y))]),
            # Rows of 16 pixels are read as columns.
            "wrong_axis": (x.reshape(len(x), 1, 16, 8).transpose(2, 3), y),
            # The file could not be read: the loader returned what it began with.
            "constant_inputs": (torch.zeros_like(x), y),
            "off_by_one": (x, (y + 1) % 10),
        },
        (x, y),
    )


def _numbers(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures float32 [count, 1, 8, 16] and digits int64 [count, 2]."""
    pictures, digits = load_digits(return_X_y=True)
    chosen = draw.numpy.integers(0, len(digits), (count, 2))
    x = pictures.reshape(-1, 8, 8)[chosen].transpose(0, 2, 1, 3).reshape(count, 1, 8, 16)
    x = x / 8 - 1 + draw.between(0.1, 0.3) * draw.numpy.normal(size=x.shape)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(digits[chosen])


FAMILY = Family(
    _train,
    (
        *("swapped_heads", "term_left_out", "term_wrong_sign"),
        *("shuffled_labels", "wrong_axis", "constant_inputs", "off_by_one"),
        *("dead_relu", "large_init", "lr_too_high"),
    ),
    spent="2026-11-28",
)
