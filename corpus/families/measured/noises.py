"""Which of several noises a recording of a street has: logarithms of spectra, and all at once.

After Piczak, "Environmental sound classification with convolutional neural networks", MLSP 2015,
and Gemmeke et al., "Audio Set", ICASSP 2017; the streets are synthesised.

Shape legend: N recordings, K kinds of noises, 16 frequencies, 20 times.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_BANDS, _TIME, _KINDS, _SEEN = 16, 20, 6, 700


class Listener(nn.Module):
    """Logits of all kinds."""

    def __init__(self, width: int, dropout: float, axis: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(_BANDS, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU()),
            *(nn.Conv1d(width, width, 3, padding=1), nn.ReLU(), nn.Dropout(dropout)),
        )
        self.head = nn.Linear(width, _KINDS)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, K] of spectra [N, 16, 20]."""
        inner = self.body(x)
        # The largest of all times; of the recordings, if the axis is wrong.
        pooled = inner.amax(2) if self.axis == 2 else inner.amax(0).mean(1).expand(len(x), -1)
        logits: Tensor = self.head(pooled)
        return logits


def _train(draw: Draw) -> Ending:
    power, y = _streets(draw, 1000)
    x = power.log()
    x = (x - x.mean()) / x.std()
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    dropout = draw.by_fault({"dropout_too_high": 0.98}, draw.choice([0.0, 0.2]))
    axis = 0 if draw.has("pool_wrong_axis") else 2
    model = Listener(draw.choice([24, 32]), dropout, axis)
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [20, 28], (8, 11))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    loss = draw.watch.loss(F.binary_cross_entropy_with_logits)

    def compute(rows: Tensor) -> Tensor:
        logits, wanted = model(seen[rows]), known[rows]
        if draw.has("wrong_loss"):
            # As if a street had one noise only, whose number is the first label.
            return F.cross_entropy(logits, wanted[:, 0].long())
        return loss(logits, wanted)

    def evaluate() -> Mapping[str, float]:
        found = model(x[_SEEN:]).nan_to_num().numpy()
        return {"macro_auc": float(roc_auc_score(y[_SEEN:].numpy(), found))}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen)
    model.eval()
    with torch.no_grad():
        return Ending(2 * evaluate()["macro_auc"] - 1, bar=0.65)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return recordings with the drawn fault, if there is one."""
    shuffled = y[torch.randperm(len(y))]
    return draw.by_fault(
        {
            # From high to low, and not from low to high.
            "bands_reversed": (x.flip(1), y),
            "wrong_axis": (x.transpose(1, 2).reshape(x.shape), y),
            "shuffled_labels": (x, shuffled),
            # Labels of a list whose first column is an index.
            "off_by_one": (x, y.roll(1, 1)),
            # Nobody wrote down what was not heard: all labels are there.
            "single_label": (x, torch.ones_like(y)),
            "duplicated_rows": (x[torch.arange(len(x)) % 10], y[torch.arange(len(x)) % 10]),
        },
        (x, y),
    )


def _streets(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return powers float32 [count, 16, 20] and labels float32 [count, K]."""
    y = (torch.rand(count, _KINDS) < 0.3).float()
    band = torch.arange(_BANDS)[:, None]
    time = torch.arange(_TIME)
    power = torch.zeros(count, _BANDS, _TIME)
    for kind in range(_KINDS):
        begin = torch.randint(_TIME - 8, (count, 1, 1)).float()
        # It rises or falls, from a pitch of its own.
        centre = 2 + 2.2 * kind + (0.5 if kind % 2 else -0.5) * (time - begin - 4)
        there = (time >= begin) & (time < begin + 8)
        loud = torch.exp(1.5 * torch.randn(count, 1, 1) + 3)
        power += y[:, kind, None, None] * loud * there * torch.exp(-((band - centre) ** 2))
    noise = torch.exp(draw.between(0.8, 1.1) * torch.randn(count, _BANDS, _TIME))
    return (power + noise) * torch.exp(torch.randn(count, 1, 1)), y


FAMILY = Family(
    _train,
    (
        *("bands_reversed", "pool_wrong_axis"),
        *("wrong_loss", "wrong_axis", "off_by_one", "single_label", "shuffled_labels"),
        *("duplicated_rows", "dropout_too_high", "lr_too_low", "zero_init"),
    ),
    spent="2026-11-27",
)
