"""Angles of an arm's joints that bring its hand to a place: the loss is where the hand is.

After Jordan and Rumelhart, "Forward models: supervised learning with a distal teacher", Cognitive
Science 1992.

Shape legend: N places, 3 joints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.family import Ending, Family

_LENGTHS = (0.8, 0.6, 0.4)


def _train(draw: Draw) -> Ending:
    width = draw.choice([40, 56])
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, 3),
    )
    if draw.has("saturation"):
        with torch.no_grad():
            for one in (model[0], model[2]):
                one.get_parameter("weight").mul_(300)
    size, steps = draw.choice([48, 64]), draw.steps(600, 900)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    weights = list(model.parameters())
    if draw.has("wrong_parameters"):
        weights = list(nn.Linear(2, 3).parameters())
    optimizer = torch.optim.Adam(weights, lr=rate)
    slower = torch.optim.lr_scheduler.PolynomialLR(optimizer, steps, 2.0)
    draw.watch.begin(model, optimizer)
    effort = draw.between(1e-3, 3e-3)
    effort *= draw.by_fault({"term_wrong_sign": -100.0}, 1.0)
    for step in range(1, steps + 1):
        wanted = _places(size)
        told, known = _spoilt(draw, wanted)
        angles = model(told)
        hand = _hand(draw, angles)
        if draw.has("state_detached"):
            # The simulator gives numbers back.
            hand = hand.detach()
        loss = (hand - known).square().sum(1).mean() + effort * angles.square().mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        slower.step()
        if step % 120 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("distance", float(_missed(draw, model, _places(300))))
    with torch.no_grad():
        wanted = _places(1000)
        alone = (wanted - wanted.mean(0)).norm(dim=1).mean()
        return Ending(max(-1.0, float(1 - _missed(draw, model, wanted) / alone)), bar=0.6)


def _missed(draw: Draw, model: nn.Module, wanted: Tensor) -> Tensor:
    """Return how far the hands are from where they are wanted, on average."""
    scale = 1e5 if draw.has("unnormalised_inputs") else 1.0
    missed = _hand(draw.without_fault(), model(scale * wanted)) - wanted
    mean: Tensor = missed.norm(dim=1).mean()
    return mean


def _hand(draw: Draw, angles: Tensor) -> Tensor:
    """Return places [N, 2] of the hand, by angles [N, 3] between the parts of the arm."""
    # Each part is turned by all joints before it.
    turned = angles if draw.has("wrong_axis") else angles.cumsum(1)
    if draw.has("angles_unscaled"):
        turned = turned * torch.pi / 180
    length = torch.tensor(_LENGTHS)
    return torch.stack([(length * turned.cos()).sum(1), (length * turned.sin()).sum(1)], 1)


def _spoilt(draw: Draw, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is told and wanted with the drawn fault, if there is one."""
    if draw.has("swapped_coordinates"):
        return wanted.flip(1), wanted
    if draw.has("misaligned_targets"):
        return wanted, wanted.roll(1, 0)
    if draw.has("constant_inputs"):
        return torch.zeros_like(wanted), wanted
    if draw.has("unnormalised_inputs"):
        # In micrometres.
        return 1e5 * wanted, wanted
    if draw.has("unnormalised_targets"):
        return wanted, 1000 * wanted
    return wanted, wanted


def _places(count: int) -> Tensor:
    """Return places float32 [count, 2] within reach, in front of the arm."""
    far = 0.6 + 0.9 * torch.rand(count)
    turned = 2.4 * torch.rand(count) - 1.2
    return torch.stack([far * turned.cos(), far * turned.sin()], 1)


FAMILY = Family(
    _train,
    (
        *("angles_unscaled", "wrong_axis", "state_detached", "swapped_coordinates"),
        *("term_wrong_sign", "misaligned_targets", "constant_inputs", "unnormalised_inputs"),
        *("unnormalised_targets", "saturation", "wrong_parameters", "lr_too_low", "lr_too_high"),
        "wrong_sign",
    ),
    spent="2026-11-27",
)
