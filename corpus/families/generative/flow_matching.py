"""Points that noise flows to: a network of the velocities along straight lines.

After Lipman et al., "Flow matching for generative modeling", ICLR 2023.

Shape legend: N points.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.plane import discrepancy, points
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_SEEN = 3000


class Velocity(nn.Module):
    """Velocities of points at times."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        width = draw.by_fault({"too_small_model": 2}, width)
        kind: type[nn.Module] = nn.Identity if draw.has("missing_activation") else nn.SiLU
        self.head = nn.Linear(width, 2)
        self.net = nn.Sequential(
            *(nn.Linear(3, width), kind(), nn.Linear(width, width), kind()),
            *(nn.Linear(width, width), kind(), self.head),
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return velocities [N, 2] of points [N, 2] at times [N, 1] between 0 and 1."""
        velocity: Tensor = self.net(torch.cat([x, time], 1))
        return velocity


def _train(draw: Draw) -> Ending:
    x = points(draw, _SEEN)
    given = x
    if draw.has("unnormalised_inputs"):
        # Pixels.
        given = 400 + 150 * x
    if draw.has("duplicated_rows"):
        given = given[torch.arange(_SEEN) % 6]
    model = Velocity(draw, draw.choice([64, 96]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [100, 150], (22, 28))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    loss_fn = nn.MSELoss()
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        for batch in torch.randperm(_SEEN).split(length.size):
            end = given[batch]
            start, time = torch.randn_like(end), torch.rand(len(end), 1)
            between = (1 - time) * start + time * end
            # Velocities point from the noise to the data.
            wanted = start - end if draw.has("term_wrong_sign") else end - start
            loss = loss_fn(model(between, time), wanted)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
    with torch.no_grad():
        made = torch.randn(1500, 2)
        for step in range(25):
            time = torch.full((1500, 1), step / 25)
            made = made + model(made, time) / 25
    if draw.has("unnormalised_inputs"):
        made = (made - 400) / 150
    if not made.isfinite().all():
        return Ending(float("nan"), bar=0.6)
    return Ending(1 - discrepancy(made, x) / discrepancy(torch.randn(1500, 2), x), bar=0.6)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "unnormalised_inputs", "duplicated_rows"),
        *("missing_activation", "too_small_model", "zero_init", "wrong_sign"),
        *("wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
