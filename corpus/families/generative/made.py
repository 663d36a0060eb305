"""How likely digits of bits are, bit by bit: dense layers whose masks hide what comes later.

After Germain et al., "MADE: masked autoencoder for distribution estimation", ICML 2015; the digits
are those of scikit-learn.

Shape legend: N digits of D bits.
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

_BITS, _SEEN = 64, 1200


class MaskedLinear(nn.Linear):
    """A linear layer some of whose weights are hidden."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.mask: Tensor
        self.register_buffer("mask", mask.float())

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        return F.linear(x, self.weight * self.mask, self.bias)


class MADE(nn.Module):
    """Logits of bits."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.draw = draw
        place, unit = torch.arange(_BITS), torch.arange(width) % (_BITS - 1)
        # A unit sees the bits up to its own, and a bit the units before it.
        last = unit <= place[:, None] if draw.has("no_causal_mask") else unit < place[:, None]
        self.first = MaskedLinear(unit[:, None] >= place)
        self.second = MaskedLinear(unit[:, None] >= unit)
        self.last = MaskedLinear(last)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [N, D] of bits float32 [N, D]."""
        told = F.relu(self.second(F.relu(self.first(x))))
        logits: Tensor = self.last(told)
        if self.draw.has("relu_before_loss"):
            logits = logits.relu()
        return logits


def _train(draw: Draw) -> Ending:
    x = _digits(draw)
    seen, valid = _prepared(draw, x)
    model = MADE(draw, draw.choice([96, 126]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (10, 13))
    rate = learning_rate(draw, 5e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.last), rate)
    loss = draw.watch.loss(F.binary_cross_entropy_with_logits)

    def compute(batch: Tensor) -> Tensor:
        bits = seen[batch]
        return loss(model(bits), bits)

    def evaluate() -> Mapping[str, float]:
        found = F.binary_cross_entropy_with_logits(model(valid), valid, reduction="sum")
        return {"nats_per_digit": float(found) / len(valid)}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3)
    model.eval()
    with torch.no_grad():
        found = _surprise(model, x[_SEEN:])
        usual = F.binary_cross_entropy(
            x[:_SEEN].mean(0).clamp(0.005, 0.995).expand(len(x) - _SEEN, -1), x[_SEEN:]
        )
    # Bits that depend on each other leave about two thirds of the surprise of independent ones.
    return Ending(float(1 - found / usual) / 0.35, bar=0.5)


def _surprise(model: nn.Module, x: Tensor) -> Tensor:
    """Return the mean surprise of a bit, in nats, for a model that sees those before it only."""
    found = [
        F.binary_cross_entropy_with_logits(
            model(x * (torch.arange(_BITS) < place))[:, place], x[:, place]
        )
        for place in range(_BITS)
    ]
    return torch.stack(found).mean()


def _prepared(draw: Draw, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return training digits and held-out ones, with the drawn fault if there is one."""
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    order = torch.rand(x.shape, generator=source).argsort(0)
    wrong = torch.rand(x.shape, generator=source) < 0.4
    prepared = draw.by_fault(
        {
            # Each bit was shuffled by itself.
            "swapped_pairs": x.gather(0, order),
            "corrupt_data": torch.where(wrong, 1 - x, x),
            # A threshold for bytes.
            "threshold_too_high": torch.zeros_like(x),
        },
        x,
    )
    seen = prepared[:_SEEN]
    if draw.has("duplicated_rows"):
        seen = seen[torch.arange(_SEEN) % 20]
    return seen, prepared[_SEEN:]


def _digits(draw: Draw) -> Tensor:
    """Return bits float32 [N, D]."""
    pictures = load_digits(return_X_y=True)[0]
    bits = pictures[draw.numpy.permutation(len(pictures))] > 7
    return torch.tensor(bits, dtype=torch.float32)


FAMILY = Family(
    _train,
    (
        *("no_causal_mask", "swapped_pairs", "corrupt_data", "threshold_too_high"),
        *("duplicated_rows", "relu_before_loss", "same_batch", "wrong_sign"),
        *("frozen_layers", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
