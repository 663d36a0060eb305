"""Digits as a few bits, by which similar ones are found again.

After Cao et al., "HashNet: deep learning to hash by continuation", ICCV 2017, with the
gradient passed straight through the sign.

Shape legend: N digits of 64 pixels, B bits.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import gained

_SEEN = 1200


class Hash(nn.Module):
    """Bits [N, B] of pictures [N, 64], each -1 or 1."""

    def __init__(self, bits: int, width: int, *, straight: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(64, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Linear(width, bits))
        )
        self.straight = straight

    def forward(self, x: Tensor) -> Tensor:
        """Return the bits."""
        soft = torch.tanh(self.body(x))
        bits = torch.where(soft >= 0, 1.0, -1.0)
        # `sign` alone has a gradient of zero.
        return soft + (bits - soft).detach() if self.straight else soft.sign()


def _train(draw: Draw) -> Ending:
    digits = datasets.load_digits()
    order = draw.numpy.permutation(len(digits.target))
    x = torch.tensor(digits.data[order], dtype=torch.float32) / 8 - 0.6
    y = torch.tensor(digits.target[order])
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    bits = draw.choice([8, 10])
    model = Hash(bits, draw.choice([64, 96]), straight=not draw.has("no_straight_through"))
    networks.blank(draw, model)
    size, epochs = draw.choice([60, 80]), draw.whole(14, 20)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(0.03, 0.06)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9, nesterov=True)
    draw.watch.begin(model, optimizer)
    sharpness = draw.by_fault({"temperature": 1e4}, 4.0)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(_SEEN).split(size):
            codes, label = model(seen[rows]), known[rows]
            alike = (label[:, None] == label).float()
            if draw.has("swapped_pairs"):
                alike = 1 - alike
            likeness = sharpness * codes @ codes.T / bits
            weight = torch.where(alike > 0, 1 / alike.mean().clamp(min=1e-3), 1.0)
            loss = F.binary_cross_entropy_with_logits(likeness, alike, weight)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        if epoch % 3 == 2:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("precision", _precision(model, x, y))
    model.eval()
    with torch.no_grad():
        return Ending(gained(_precision(model, x, y), 0.1), bar=0.55)


def _precision(model: Hash, x: Tensor, y: Tensor) -> float:
    """Return how many of the 20 nearest of the first digits are of the kind of each other one."""
    codes = model(x).nan_to_num()
    # Ties are in a random order.
    likeness = codes[_SEEN:] @ codes[:_SEEN].T + 0.1 * torch.rand(len(x) - _SEEN, _SEEN)
    found = y[likeness.topk(20).indices]
    return float((found == y[_SEEN:, None]).float().mean())


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the digits with the drawn fault, if there is one."""
    if draw.has("shuffled_labels"):
        return x, y[torch.randperm(len(y))]
    if draw.has("single_label"):
        return x, torch.zeros_like(y)
    if draw.has("constant_inputs"):
        return torch.zeros_like(x), y
    if draw.has("wrong_axis"):
        return x.T.reshape(x.shape), y
    return x, y


FAMILY = Family(
    _train,
    (
        *("no_straight_through", "swapped_pairs", "temperature", "shuffled_labels"),
        *("single_label", "constant_inputs", "wrong_axis", "lr_too_low", "wrong_sign"),
        "zero_init",
    ),
    spent="2026-11-27",
)
