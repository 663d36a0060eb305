"""How many colonies of bacteria a dish has: a map of their density, whose sum is the number.

After Lempitsky and Zisserman, "Learning to count objects in images", NIPS 2010; the dishes are
drawn.

Shape legend: N pictures of 16 x 16 pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_SIDE, _SEEN = 16, 400
# Densities are small numbers, and are learned a hundredfold.
_UNIT = 100.0


class Counter(nn.Module):
    """Densities of colonies."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1)
        self.density = nn.Conv2d(width, 1, 1)
        self.bounded = draw.has("wrong_output_activation")

    def forward(self, x: Tensor) -> Tensor:
        """Return densities [N, 1, 16, 16] of pictures float32 [N, 1, 16, 16]."""
        for layer in (self.conv1, self.conv2, self.conv3):
            x = F.leaky_relu(layer(x), 0.1)
        found: Tensor = self.density(x)
        return found.sigmoid() if self.bounded else found


def _train(draw: Draw) -> Ending:
    rows = _dishes(draw, 560)
    model = Counter(draw, draw.choice([10, 14]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [10, 16], (8, 10))
    rate = learning_rate(draw, 2e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.density), rate)
    loss_fn = draw.watch.loss(F.mse_loss)
    draw.watch.begin(model, optimizer)
    for epoch in range(length.epochs):
        model.train()
        running = 0.0
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            if not draw.has("missing_zero_grad"):
                optimizer.zero_grad()
            loss = loss_fn(model(rows.x[picked]), rows.y[picked])
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            running += loss.item()
        if epoch % 2:
            model.eval()
            with draw.watch.evaluating(), torch.no_grad():
                found, true = (one.sum((1, 2, 3)) for one in (model(rows.x_val), rows.y_val))
                draw.watch.metric("count_mae", float((found - true).abs().mean()) / _UNIT)
    model.eval()
    with torch.no_grad():
        found, true = (one.sum((2, 3)) for one in (model(rows.x_test), rows.y_test))
    return Ending(explained(found, true), bar=0.6)


def _dishes(draw: Draw, count: int) -> HeldOut:
    """Return standardised pictures, and densities, both float32 [count, 1, 16, 16]."""
    grains = (torch.rand(count, 1, _SIDE, _SIDE) < 0.04 * torch.rand(count, 1, 1, 1)).float()
    spot = torch.arange(-2, 3).float().square()
    spot = (-(spot[:, None] + spot) / 2).exp()
    spread = F.conv2d(grains, (spot / spot.sum())[None, None], padding=2)
    x = 3 * F.conv2d(grains, spot[None, None], padding=2).clamp(max=1.5)
    x = x + torch.rand(count, 1, 1, 1) + draw.between(0.2, 0.35) * torch.randn(x.shape)
    x = (x - x.mean()) / x.std()
    y = _UNIT * spread
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={"unnormalised_inputs": (1800 + 900 * x, y)},
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "misaligned_targets", "nan_inputs"),
        *(
            "wrong_output_activation",
            "wrong_sign",
            "zero_init",
            "detached_graph",
            "lr_too_low",
            "lr_too_high",
        ),
    ),
    spent="2026-11-28",
)
