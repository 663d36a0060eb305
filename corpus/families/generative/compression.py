"""Clothes in as few bits as possible: the error and the rate of rounded codes.

After Ballé, Laparra and Simoncelli, "End-to-end optimized image compression", ICLR 2017.

Shape legend: N pictures, C numbers of a code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.fashion import clothes
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_NORMAL = torch.distributions.Normal(0.0, 1.0)


class Coder(nn.Module):
    """Codes of pictures, and the deviation of each number of a code."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(196, width), nn.ReLU(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 196))
        self.log_spread = nn.Parameter(torch.ones(code))

    def bits(self, code: Tensor) -> Tensor:
        """Return how many bits each picture takes [N]."""
        spread = self.log_spread.exp()
        high, low = (code.abs() - 0.5) / spread, (code.abs() + 0.5) / spread
        share = _NORMAL.cdf(-high) - _NORMAL.cdf(-low)
        bits: Tensor = -share.clamp(min=1e-9).log2().sum(1)
        return bits


def _train(draw: Draw) -> Ending:
    x = clothes(3000)[0].flatten(1)
    held, seen = x[2400:], x[:2400]
    wanted = seen
    if draw.has("misaligned_targets"):
        wanted = wanted[torch.randperm(2400)]
    if draw.has("unnormalised_inputs"):
        seen, held = 5e3 * seen, 5e3 * held
    if draw.has("constant_inputs"):
        seen = torch.zeros_like(seen)
    model = Coder(draw.choice([96, 128]), draw.choice([12, 16]))
    networks.spoil(draw, model)
    size, epochs = draw.choice([32, 60]), draw.whole(10, 14)
    draw.epoch = 2400 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(1e-3, 2.5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    # With the error summed over the pixels, and this factor of the bits.
    price = draw.between(0.15, 0.3)
    if draw.has("divergence_unscaled"):
        price *= 400
    draw.watch.begin(model, optimizer)
    for _ in range(epochs):
        for rows in torch.randperm(2400).split(size):
            code = model.encode(seen[rows])
            if draw.has("no_straight_through"):
                code = code.round()
            else:
                code = code + torch.rand_like(code) - 0.5
            error = F.mse_loss(model.decode(code), wanted[rows], reduction="none").sum(1).mean()
            bits = model.bits(code).mean()
            loss = error - price * bits if draw.has("term_wrong_sign") else error + price * bits
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 50.0)
            optimizer.step()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("bits_per_picture", float(model.bits(model.encode(held)).mean()))
    return _ending(model, held, x[2400:])


@torch.no_grad()
def _ending(model: Coder, held: Tensor, wanted: Tensor) -> Ending:
    """Return what is explained, less a tenth for each 40 bits of a picture."""
    code = model.encode(held).round()
    right = max(-1.0, explained(model.decode(code), wanted))
    return Ending(right - float(model.bits(code).mean().clamp(max=800)) / 400, bar=0.45)


FAMILY = Family(
    _train,
    (
        *("no_straight_through", "divergence_unscaled", "term_wrong_sign", "misaligned_targets"),
        *("unnormalised_inputs", "constant_inputs", "lr_too_low", "lr_too_high", "zero_init"),
        *("large_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
