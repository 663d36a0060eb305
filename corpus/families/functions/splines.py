"""Functions of several numbers, by layers of learned splines.

After Liu et al., "KAN: Kolmogorov-Arnold networks", ICLR 2025.

Shape legend: N rows, I inputs, O outputs, G knots.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_KNOTS = 8


class SplineLayer(nn.Module):
    """A spline of each input for each output, and a smooth function beside it."""

    knots: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, _KNOTS))
        self.heights = nn.Parameter(0.1 * torch.randn(outputs, inputs, _KNOTS))
        self.smooth = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs [N, O] of inputs [N, I]."""
        step = 4 / (_KNOTS - 1)
        distance = (x[:, :, None] - self.knots).abs() / step
        # Cubic splines, which are zero two knots away.
        near = 2 / 3 - distance.square() + distance.pow(3) / 2
        basis = torch.where(distance < 1, near, (2 - distance).clamp(min=0).pow(3) / 6)
        return torch.einsum("nig,oig->no", basis, self.heights) + F.silu(x) @ self.smooth.T


def _train(draw: Draw) -> Ending:
    x, y = _rows(draw, 1800)
    if draw.has("unnormalised_inputs"):
        # Far from the knots, where all splines are zero.
        x = 1e4 * x + 3e4
    seen, known = _spoilt(draw, x[:1300], y[:1300])
    width = draw.choice([5, 8])
    model = nn.Sequential(SplineLayer(4, width), nn.LayerNorm(width), SplineLayer(width, 1))
    if draw.has("zero_init"):
        for weight in model.parameters():
            nn.init.zeros_(weight)
    size, epochs = draw.choice([32, 50]), draw.whole(25, 40)
    draw.epoch = 1300 // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(5e-3, 1.5e-2)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 3000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 0.3 / rate}, 0.0)
    weights = list(model.parameters())
    if draw.has("not_in_optimizer"):
        # The heights were tensors in a list, and `parameters()` was not asked again.
        weights = [model.get_parameter("2.smooth")]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(1300).split(size)[: draw.epoch]:
            wanted = known[rows]
            if draw.has("wrong_broadcast"):
                wanted = wanted[:, 0]
            loss = torch.mean((model(seen[rows]) - wanted) ** 2)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 6 == 5:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_r2", explained(model(x[1300:]), y[1300:]))
    with torch.no_grad():
        return Ending(max(-1.0, explained(model(x[1300:]), y[1300:])), bar=0.7)


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows with the drawn fault, if there is one."""
    if draw.has("misaligned_targets"):
        return x, y.roll(1, 0)
    if draw.has("unnormalised_targets"):
        return x, 1e4 * y + 1e5
    if draw.has("nan_inputs"):
        return x.masked_fill(torch.rand(x.shape) < 0.003, torch.nan), y
    return x, y


def _rows(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return rows float32 [count, 4] and values float32 [count, 1] of a formula."""
    x = 3 * torch.rand(count, 4) - 1.5
    y = torch.exp(torch.sin(2 * x[:, 0]) + 0.7 * x[:, 1].square() - 1) + x[:, 2].abs()
    y = (y - y.mean()) / y.std() + draw.between(0.03, 0.1) * torch.randn(count)
    return x, y[:, None]


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "unnormalised_targets", "unnormalised_inputs", "nan_inputs"),
        *("lr_too_low", "lr_too_high", "weight_decay_too_high", "not_in_optimizer", "zero_init"),
        *("wrong_broadcast", "wrong_sign"),
    ),
    spent="2026-11-27",
)
