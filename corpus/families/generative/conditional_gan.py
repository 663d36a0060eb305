"""Points of a wanted kind, by a generator and a critic that are both told which kind it is.

After Mirza and Osindero, "Conditional generative adversarial nets", 2014.

Shape legend: N points in the plane.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.networks import spoil

_KINDS, _NOISE, _SEEN = 4, 4, 1200


class Network(nn.Module):
    """A network of numbers and a kind."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.kinds = nn.Embedding(_KINDS, 8)
        self.layers = nn.Sequential(
            *(nn.Linear(inputs + 8, width), nn.LeakyReLU(0.2), nn.Linear(width, width)),
            *(nn.LeakyReLU(0.2), nn.Linear(width, outputs)),
        )

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        """Return outputs [N, *] of numbers float32 [N, *] and kinds int64 [N]."""
        found: Tensor = self.layers(torch.cat([x, self.kinds(kind)], 1))
        return found


def _train(draw: Draw) -> Ending:
    x, kind = _points(draw, _SEEN)
    given, known = draw.by_fault(
        {
            "shuffled_labels": (x, kind[torch.randperm(_SEEN)]),
            "unnormalised_inputs": (3000 + 500 * x, kind),
        },
        (x, kind),
    )
    generator = Network(_NOISE, 2, draw.choice([32, 48]))
    critic = Network(2, 1, draw.choice([32, 48]))
    spoil(draw, generator)
    length = plan(draw, _SEEN, [60, 80], (28, 34))
    rate = learning_rate(draw, 1e-3, 2e-3)
    betas = (0.5, 0.999)
    of_generator = torch.optim.Adam(generator.parameters(), lr=rate, betas=betas)
    of_critic = torch.optim.Adam(critic.parameters(), lr=rate, betas=betas)
    loss_fn = draw.watch.loss(F.binary_cross_entropy_with_logits)
    draw.watch.begin(critic, of_critic, name="critic")
    draw.watch.begin(generator, of_generator, name="generator")
    for _ in range(length.epochs):
        for picked in torch.randperm(_SEEN).split(length.size)[: length.batches]:
            true, wanted = given[picked], known[picked]
            made = generator(torch.randn(len(true), _NOISE), wanted)
            real, fake = critic(true, wanted), critic(made.detach(), wanted)
            loss = loss_fn(real, torch.ones_like(real)) + loss_fn(fake, torch.zeros_like(fake))
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            # No gradient reaches what has made the points.
            judged = critic(made.detach() if draw.has("detached_graph") else made, wanted)
            target = torch.zeros_like(judged) if draw.has("wrong_sign") else torch.ones_like(judged)
            loss = loss_fn(judged, target)
            if not draw.has("missing_zero_grad"):
                of_generator.zero_grad()
            loss.backward()
            if not draw.has("missing_step"):
                of_generator.step()
    return _ending(draw, generator, x, kind)


def _ending(draw: Draw, generator: Network, x: Tensor, kind: Tensor) -> Ending:
    """Return how near the points of each kind are to true ones, in mean and spread."""
    errors = []
    with draw.watch.evaluating(), torch.no_grad():
        for one in range(_KINDS):
            made = generator(torch.randn(400, _NOISE), torch.full((400,), one))
            if draw.has("unnormalised_inputs"):
                made = (made - 3000) / 500
            true = x[kind == one]
            errors.append((made.mean(0) - true.mean(0)).square().sum())
            errors.append((made.std(0) - true.std(0)).square().sum())
    # Points at the origin have an error of about 1 for each kind.
    return Ending(float(1 - torch.stack(errors).sum() / _KINDS), bar=0.6)


def _points(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return points float32 [count, 2] about a place of each kind, and kinds int64 [count]."""
    kind = torch.randint(_KINDS, (count,))
    angle = torch.pi * kind / 2 + 0.3
    centre = torch.stack([angle.cos(), angle.sin()], 1)
    return centre + draw.between(0.15, 0.25) * torch.randn(count, 2), kind


FAMILY = Family(
    _train,
    (
        *("shuffled_labels", "unnormalised_inputs", "detached_graph", "wrong_sign"),
        *("missing_step", "missing_zero_grad", "zero_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
