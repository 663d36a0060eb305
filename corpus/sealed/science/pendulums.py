"""How pendulums move, by an energy that is learned: the motion is its gradient.

After Greydanus, Dzamba and Yosinski, "Hamiltonian neural networks", NeurIPS 2019.

Shape legend: N states of an angle and a momentum.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_SEEN = 600


class HNN(nn.Module):
    """Energy of a state, and how the state changes."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        activation = nn.Identity if draw.has("missing_activation") else nn.Tanh
        self.body = nn.Sequential(
            *(nn.Linear(2, width), activation(), nn.Linear(width, width), activation())
        )
        self.head = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return changes [N, 2] of states float32 [N, 2] that require a gradient."""
        energy = self.head(self.body(x)).sum()
        by_angle, by_momentum = torch.autograd.grad(energy, x, create_graph=True)[0].unbind(1)
        return torch.stack([by_momentum, -by_angle], 1)


def _train(draw: Draw) -> Ending:
    rows = _states(draw, 900)
    model = HNN(draw, draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [20, 30], (12, 16))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate, 1e-5)

    def l2_loss(found: Tensor, true: Tensor) -> Tensor:
        return (found - true).square().mean()

    loss_fn = draw.watch.loss(l2_loss)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            x = rows.x[picked].requires_grad_()
            loss = loss_fn(model(x), rows.y[picked])
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        with draw.watch.evaluating():
            found = model(rows.x_val.clone().requires_grad_()).detach()
            draw.watch.metric("test_loss", float(l2_loss(found, rows.y_val)))
    found = model(rows.x_test.clone().requires_grad_()).detach()
    return Ending(explained(found, rows.y_test), bar=0.7)


def _states(draw: Draw, count: int) -> HeldOut:
    """Return states float32 [count, 2], and their changes [count, 2]."""
    angle, momentum = 5 * torch.rand(count) - 2.5, 4 * torch.rand(count) - 2
    x = torch.stack([angle, momentum], 1)
    y = torch.stack([2 * momentum, -3 * angle.sin()], 1)
    y = y + draw.between(0.1, 0.3) * torch.randn(count, 2)
    degrees = x * torch.tensor([57.3, 1000.0])
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            # Degrees, and grams.
            "unnormalised_inputs": (degrees, y),
            "unnormalised_targets": (x, 2000 * y),
            # Positions of one file, changes of another one.
            "swapped_pairs": (x, y[torch.randperm(count)]),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "unnormalised_targets", "swapped_pairs", "misaligned_targets"),
        *("missing_activation", "wrong_sign", "zero_init"),
        *("lr_too_low", "lr_too_high"),
    ),
)
