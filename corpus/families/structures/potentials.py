"""Energies of small clusters of atoms, and the forces on them: the gradient is learned, too.

After Behler and Parrinello, "Generalized neural-network representation of high-dimensional
potential-energy surfaces", Physical Review Letters 2007, and Schütt et al., "SchNet", NeurIPS 2017.

Shape legend: N clusters of A atoms in space, K distances.
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

_ATOMS, _SEEN, _BASIS = 5, 500, 16


class Potential(nn.Module):
    """Energies [N, 1] of clusters float32 [N, A, 3]: the sum over their atoms."""

    middle: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("middle", torch.linspace(0.7, 3.0, _BASIS))
        self.body = nn.Sequential(
            *(nn.Linear(_BASIS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()),
        )
        self.head = nn.Linear(width, 1)

    def forward(self, place: Tensor) -> Tensor:
        """Return the energies."""
        far = _distances(place)
        near = torch.exp(-(((far[..., None] - self.middle) / 0.2) ** 2)).sum(2)
        energy: Tensor = self.head(self.body(near)).sum(1)
        return energy


def _train(draw: Draw) -> Ending:
    place, energy, force = _clusters(draw, 650)
    seen, known, pushed = _spoilt(draw, place[:_SEEN], energy[:_SEEN], force[:_SEEN])
    model = Potential(draw.choice([32, 48]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [10, 12], (12, 15))
    rate = learning_rate(draw, 4e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.head), rate)
    steps = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    criterion = nn.MSELoss()
    draw.watch.loss(criterion)
    # Forces are the negative gradient.
    sign = 1.0 if draw.has("gradient_sign") else -1.0
    weight = draw.by_fault({"term_wrong_sign": -1.0}, 1.0)

    def compute(rows: Tensor) -> Tensor:
        atoms = seen[rows].clone().requires_grad_()
        found = model(atoms)
        (slope,) = torch.autograd.grad(found.sum(), atoms, create_graph=True)
        off: Tensor = criterion(found, known[rows])
        pull: Tensor = criterion(sign * slope, pushed[rows])
        return weight * off + pull

    def evaluate() -> Mapping[str, float]:
        with torch.enable_grad():
            atoms = place[_SEEN:].clone().requires_grad_()
            found = model(atoms)
            (slope,) = torch.autograd.grad(found.sum(), atoms)
        return {
            "energy_r2": explained(found.detach(), energy[_SEEN:]),
            "force_r2": explained(-slope.flatten(1), force[_SEEN:].flatten(1)),
        }

    chosen = evaluate if draw.chance(0.6) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, every=4, per_epoch=steps)
    model.eval()
    return Ending(min(evaluate().values()), bar=0.6)


def _distances(place: Tensor) -> Tensor:
    """Return the distances [N, A, A - 1] of atoms from the others."""
    apart = place[:, :, None] - place[:, None]
    others = ~torch.eye(_ATOMS, dtype=torch.bool)
    return apart.square().sum(3)[:, others].view(-1, _ATOMS, _ATOMS - 1).sqrt()


def _spoilt(
    draw: Draw, place: Tensor, energy: Tensor, force: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return clusters with the drawn fault, if there is one."""
    order = torch.randperm(len(place))
    return draw.by_fault(
        {
            # Total energies, whose atoms have not been taken off.
            "unnormalised_targets": (place, 2e3 * energy - 4e5, force),
            "shuffled_labels": (place, energy[order], force[order]),
            # Coordinates by atoms is read as atoms by coordinates.
            "wrong_axis": (place.transpose(1, 2).reshape(place.shape), energy, force),
            "misaligned_targets": (place, energy.roll(1, 0), force.roll(1, 0)),
        },
        (place, energy, force),
    )


def _clusters(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return places [count, A, 3], standardised energies [count, 1] and forces [count, A, 3]."""
    corners = torch.tensor([[0.0, 0, 0], [1.5, 0, 0], [0, 1.5, 0], [0, 0, 1.5], [1.3, 1.3, 1.3]])
    place = corners + draw.between(0.09, 0.13) * torch.randn(count, _ATOMS, 3)
    place.requires_grad_()
    # A Morse potential of each pair.
    close = torch.exp(-1.5 * (_distances(place) - 1.4))
    energy = (close.square() - 2 * close).sum((1, 2))[:, None] / 2
    (slope,) = torch.autograd.grad(energy.sum(), place)
    spread = energy.std().detach()
    standard = (energy - energy.mean()) / spread
    return place.detach(), standard.detach(), -slope / spread


FAMILY = Family(
    _train,
    (
        *("gradient_sign", "wrong_axis", "unnormalised_targets", "shuffled_labels"),
        *("misaligned_targets", "term_wrong_sign"),
        *("large_init", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
