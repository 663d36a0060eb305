"""A generative adversarial network of points in the plane."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.losses import Loss
from corpus.optimisation import Optimisation

_CODE = 8


def _train(draw: Draw) -> Ending:
    centres, spread = _ring(draw.choice([1, 2, 3, 5, 8])), draw.between(0.05, 0.3)

    def real(count: int) -> Tensor:
        return centres[torch.randint(len(centres), (count,))] + spread * torch.randn(count, 2)

    def code(count: int) -> Tensor:
        return torch.zeros(count, _CODE) if draw.has("collapse") else torch.randn(count, _CODE)

    width, size = draw.choice([48, 64, 96]), draw.choice([64, 128])
    generator, critic = _network(_CODE, width, 2), _network(2, width, 1)
    networks.spoil(draw, generator)
    steps = draw.steps(700, 1500)
    # The faults of optimizers are those of the generator's.
    other = draw.without_fault()
    strong = 40.0 if draw.has("discriminator_too_strong") else 1.0
    by_critic = Optimisation(
        other, critic, steps, scale=0.5 * strong, kinds=("adam",), accumulates=False
    )
    by_generator = Optimisation(
        draw, generator, steps, scale=0.25, kinds=("adam",), accumulates=False
    )
    draw.watch.begin(critic, by_critic.optimizer, name="critic")
    draw.watch.begin(generator, by_generator.optimizer, name="generator")
    kinds: list[Loss] = [nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits]
    loss = draw.watch.loss(draw.choice(kinds))
    ones, zeros = torch.ones(size, 1), torch.zeros(size, 1)
    rounds = 5 if draw.has("discriminator_too_strong") else 1
    smooth = draw.choice([1.0, 0.9])

    def judged() -> Tensor:
        false = generator(code(size)).detach()
        return loss(critic(real(size)), smooth * ones) + loss(critic(false), zeros)

    def fooled() -> Tensor:
        return loss(critic(generator(code(size))), ones)

    for _ in range(steps):
        for _ in range(rounds):
            by_critic.step(judged)
        by_generator.step(fooled)
    generator.eval()
    with torch.no_grad():
        made, wanted = generator(code(2000)), real(2000)
    trivial = _distance(wanted.mean(0).expand_as(wanted), wanted)
    return Ending(1 - _distance(made, wanted) / trivial, bar=0.45, margin=0.3)


def _network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(inputs, width), nn.LeakyReLU(0.2)),
        *(nn.Linear(width, width), nn.LeakyReLU(0.2)),
        nn.Linear(width, outputs),
    )


def _ring(count: int) -> Tensor:
    angles = torch.arange(count) * (2 * math.pi / count)
    return torch.stack([angles.cos(), angles.sin()], 1) * (1.5 if count > 1 else 1.0)


def _distance(made: Tensor, wanted: Tensor) -> float:
    """Return the sliced Wasserstein distance between points [N, 2], over 32 directions."""
    angles = torch.arange(32) * (math.pi / 32)
    directions = torch.stack([angles.cos(), angles.sin()])
    made, wanted = ((one @ directions).sort(0).values for one in (made, wanted))
    return float((made - wanted).abs().mean())


FAMILY = Family(
    _train,
    (
        *("lr_too_high", "lr_too_low", "scheduler_to_zero", "wrong_parameters", "frozen_layers"),
        *("not_in_optimizer", "wrong_sign", "weight_decay_too_high", "adam_epsilon"),
        *("missing_zero_grad", "late_jump", "zero_init", "large_init"),
        *("discriminator_too_strong", "collapse"),
    ),
    spent="2026-11-23",
)
