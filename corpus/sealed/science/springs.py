"""Where balls on springs go next: a network of each pair, summed, and a network of each ball.

After Battaglia et al., "Interaction networks for learning about objects, relations and physics",
NeurIPS 2016; the balls are drawn.

Shape legend: N scenes of K balls, W numbers of an effect.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained
from corpus.networks import spoil

_BALLS, _SEEN = 5, 500


class InteractionNetwork(nn.Module):
    """Accelerations of balls."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.relation = nn.Sequential(
            *(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        )
        self.object = nn.Sequential(nn.Linear(4 + width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return accelerations [N, K, 2] of balls [N, K, 4 + K]: state, and who is tied to whom."""
        state, tied = x[:, :, :4], x[:, :, 4:]
        away = state[:, None, :, :2] - state[:, :, None, :2]
        pair = torch.cat([away, away.norm(dim=3, keepdim=True)], 3)
        effect = (self.relation(pair) * tied[..., None]).sum(2)
        found: Tensor = self.object(torch.cat([state, effect], 2))
        return found


def _train(draw: Draw) -> Ending:
    rows = _scenes(draw, 700)
    model = InteractionNetwork(draw.choice([24, 32]))
    spoil(draw, model)
    length = plan(draw, len(rows.x), [16, 20], (12, 15))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.object), rate)
    loss_fn = draw.watch.loss(F.mse_loss)

    def compute(picked: Tensor) -> Tensor:
        return loss_fn(model(rows.x[picked]), rows.y[picked])

    def evaluate() -> Mapping[str, float]:
        return {"valid mse": float(F.mse_loss(model(rows.x_val), rows.y_val))}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate)
    model.eval()
    with torch.no_grad():
        found = model(rows.x_test)
    return Ending(explained(found.flatten(1), rows.y_test.flatten(1)), bar=0.6)


def _scenes(draw: Draw, count: int) -> HeldOut:
    """Return balls float32 [count, K, 4 + K], and standardised accelerations [count, K, 2]."""
    place, speed = torch.randn(count, _BALLS, 2), torch.randn(count, _BALLS, 2)
    upper = (torch.rand(count, _BALLS, _BALLS) < 0.5).float().triu(1)
    tied = upper + upper.transpose(1, 2)
    away = place[:, None] - place[:, :, None]
    far = away.norm(dim=3, keepdim=True)
    pull = (away * (far - 1) / (far + 0.1) * tied[..., None]).sum(2)
    y = pull - 0.3 * speed + draw.between(0.05, 0.1) * torch.randn(place.shape)
    y = y / y.std()
    x = torch.cat([place, speed, tied], 2)
    mixed = torch.randperm(count)
    # Millimetres.
    raw = torch.cat([3000 * place + 5000, 3000 * speed, tied], 2)
    return held_out(
        *(draw, x, y, _SEEN),
        prepared={
            "unnormalised_inputs": (raw, y),
            # The springs are those of another scene.
            "wrong_adjacency": (torch.cat([place, speed, tied[mixed]], 2), y),
        },
    )


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_adjacency", "misaligned_targets"),
        *("missing_step", "large_init", "adam_epsilon", "dead_relu"),
        *("lr_too_low", "lr_too_high"),
    ),
)
