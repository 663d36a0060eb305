"""How much fat, water and protein meat has, from its spectrum: convolutions along the wavelengths.

After Cui and Fearn, "Modern practical convolutional neural networks for multivariate regression",
Chemometrics and Intelligent Laboratory Systems 2018; the spectra are drawn.

Shape legend: N spectra of 64 wavelengths, K concentrations.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_BANDS, _PARTS, _SEEN = 64, 3, 800


def _train(draw: Draw) -> Ending:
    x, y = _spectra(draw, 1100)
    seen, known = _spoilt(draw, x[:_SEEN], y[:_SEEN])
    model, head = _network(draw, draw.choice([8, 12]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [16, 20], (8, 11))
    rate = learning_rate(draw, 2e-3, 5e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.steps)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)

    def compute(rows: Tensor) -> Tensor:
        batch = seen[rows]
        noise = torch.randn_like(batch)
        # Noise of a hundredth of what a spectrum is, and not of a hundred times that.
        batch = batch + noise * (100.0 if draw.has("ruinous_augmentation") else 0.01)
        loss: Tensor = criterion(model(batch), known[rows])
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"val/r2": explained(model(x[_SEEN:]), y[_SEEN:])}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=3, per_batch=steps)
    model.eval()
    with torch.no_grad():
        return Ending(evaluate()["val/r2"], bar=0.6)


def _network(draw: Draw, width: int) -> tuple[nn.Module, nn.Module]:
    """Return a network of spectra [N, 1, 64], and its last layer."""
    # A momentum of 0 never moves the statistics.
    momentum = draw.by_fault({"bn_momentum": 0.0}, 0.1)
    bend: type[nn.Module] = nn.Sigmoid if draw.has("vanishing") else nn.ELU
    layers: list[nn.Module] = []
    for before, after in ((1, width), (width, width), (width, width)):
        layers.append(nn.Conv1d(before, after, 7, stride=2, padding=3))
        if not draw.concerns("vanishing"):
            layers.append(nn.BatchNorm1d(after, momentum=momentum))
        layers.append(bend())
    layers += [nn.Flatten(), nn.Linear(8 * width, 32), bend()]
    if draw.has("vanishing"):
        for _ in range(6):
            layers += [nn.Linear(32, 32), bend()]
    head = nn.Linear(32, _PARTS)
    return nn.Sequential(*layers, head), head


def _spoilt(draw: Draw, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return spectra with the drawn fault, if there is one."""
    return draw.by_fault(
        {
            # Counts of the detector, and not absorbances.
            "unnormalised_inputs": (2e4 + 5e3 * x, y),
            # The columns of the laboratory's table are in another order.
            "swapped_coordinates": (x, y.roll(1, 1)),
            "misaligned_targets": (x, y.roll(1, 0)),
            # Logarithms of counts, of which few are zero.
            "nan_inputs": (torch.where(torch.rand_like(x) < 5e-4, torch.inf, x), y),
            # The reference was measured, and not the meat.
            "constant_inputs": (x.mean(0, keepdim=True).expand_as(x), y),
        },
        (x, y),
    )


def _spectra(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return spectra float32 [count, 1, 64] and standardised concentrations [count, K]."""
    y = torch.randn(count, _PARTS)
    place = torch.arange(_BANDS)
    middle = torch.tensor([[14.0], [30.0], [46.0]])
    bands = torch.exp(-(((place - middle) / torch.tensor([[6.0], [9.0], [7.0]])) ** 2))
    # Light that is scattered tilts and lifts the whole spectrum.
    lift, tilt = 0.5 * torch.randn(2, count, 1)
    x = y @ bands + 0.3 * (y[:, :1] * y[:, 1:2]) * bands[1] + lift + tilt * (place / 32 - 1)
    x = x + draw.between(0.05, 0.15) * torch.randn(count, _BANDS)
    return x[:, None], y


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "swapped_coordinates", "misaligned_targets", "constant_inputs"),
        *("nan_inputs", "ruinous_augmentation", "bn_momentum", "vanishing", "large_init"),
        "lr_too_low",
    ),
    spent="2026-11-28",
)
