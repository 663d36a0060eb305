"""How firmly a substance binds to a protein: bits of the one, letters of the other, and a number.

After Öztürk, Özgür and Ozkirimli, "DeepDTA: deep drug-target binding affinity prediction",
Bioinformatics 2018; substances and proteins are drawn.

Shape legend: N pairs, F bits of a substance, T letters of a protein.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_BITS, _TIME, _LETTERS, _SEEN = 32, 16, 8, 1200
_Rows = tuple[Tensor, Tensor, Tensor]


class DeepDTA(nn.Module):
    """Affinities."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.substance = nn.Sequential(nn.Linear(_BITS, size), nn.ReLU())
        self.letters = nn.Embedding(_LETTERS, 12)
        self.conv = nn.Conv1d(12, size, 3, padding=1)
        self.joint = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU())
        self.out = nn.Linear(size, 1)

    def forward(self, bits: Tensor, protein: Tensor) -> Tensor:
        """Return affinities [N, 1] of bits float32 [N, F] and letters int64 [N, T]."""
        motifs = F.relu(self.conv(self.letters(protein).transpose(1, 2))).amax(2)
        affinity: Tensor = self.out(self.joint(torch.cat([self.substance(bits), motifs], 1)))
        return affinity


def _train(draw: Draw) -> Ending:
    pairs = _pairs(draw, 1700)
    bits, protein, wanted = _prepared(draw, *pairs)
    model = DeepDTA(draw.choice([32, 48]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 30], (10, 13))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    loss_fn = nn.HuberLoss()
    draw.watch.loss(loss_fn)

    def compute(batch: Tensor) -> Tensor:
        found, true = model(bits[batch], protein[batch]), wanted[batch]
        if draw.has("wrong_broadcast"):
            found = found[:, 0]
        loss: Tensor = loss_fn(found, true)
        return loss

    def evaluate() -> Mapping[str, float]:
        found = model(bits[_SEEN:], protein[_SEEN:])
        return {"val_mse": float(F.mse_loss(found, wanted[_SEEN:]))}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen)
    model.eval()
    with torch.no_grad():
        found = model(bits[_SEEN:], protein[_SEEN:])
        true = wanted[_SEEN:] if draw.has("unnormalised_targets") else pairs[2][_SEEN:]
        return Ending(explained(found, true), bar=0.5)


def _prepared(draw: Draw, bits: Tensor, protein: Tensor, wanted: Tensor) -> _Rows:
    """Return pairs as the script prepares them, with the drawn fault if there is one."""
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    order = torch.randperm(len(bits), generator=source)
    few = torch.arange(len(bits))
    few[:_SEEN] %= 15
    return draw.by_fault(
        {
            # Proteins of other rows, by a join of two tables.
            "swapped_pairs": (bits[order], protein[order.flip(0)], wanted),
            # Nanomoles.
            "unnormalised_targets": (bits, protein, 5000 * torch.exp(wanted)),
            "misaligned_targets": (bits, protein, wanted.roll(1, 0)),
            "duplicated_rows": (bits[few], protein[few], wanted[few]),
            # Letters that the table does not know are all the same.
            "colliding_ids": (bits, torch.zeros_like(protein), wanted),
        },
        (bits, protein, wanted),
    )


def _pairs(draw: Draw, count: int) -> _Rows:
    """Return bits float32 [count, F], letters int64 [count, T], affinities [count, 1]."""
    bits = (torch.rand(count, _BITS) < 0.3).float()
    protein = torch.randint(_LETTERS, (count, _TIME))
    # A pocket that two letters open, and what fits into it.
    pair = (protein[:, :-1] == 1) & (protein[:, 1:] == 2)
    other = (protein[:, :-1] == 4) & (protein[:, 1:] == 3)
    first, second = pair.any(1).float(), other.any(1).float()
    force = torch.tensor(draw.numpy.normal(size=(_BITS, 2)), dtype=torch.float32)
    fits = bits @ force / 2.5
    value = fits[:, 0] + 2.0 * first + 1.5 * second * fits[:, 1] - second
    value = value + draw.between(0.1, 0.3) * torch.randn(count)
    return bits, protein, ((value - value.mean()) / value.std())[:, None]


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "unnormalised_targets", "misaligned_targets", "duplicated_rows"),
        *("wrong_broadcast", "dead_relu", "zero_init", "not_in_optimizer", "missing_zero_grad"),
        *("lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
