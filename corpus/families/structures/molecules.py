"""A property of small graphs, by messages along their bonds and a sum over their atoms.

After Gilmer et al., "Neural message passing for quantum chemistry", ICML 2017.

Shape legend: N graphs, A atoms of a graph, F features, K properties.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import losses, networks
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, explained, run_loop
from corpus.optimisation import Optimisation

_ATOMS, _ELEMENTS = 10, 4


class MessageNet(nn.Module):
    """Messages of neighbours, gated into the state of each atom, and a readout.

    Args:
        width: size of a state.
        rounds: rounds of messages.
        axis: axis of the readout, 1 for the atoms.
    """

    def __init__(self, width: int, rounds: int, axis: int) -> None:
        super().__init__()
        self.atom = nn.Linear(_ELEMENTS, width)
        self.message = nn.Linear(width, width)
        self.update = nn.GRUCell(width, width)
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.rounds, self.axis = rounds, axis

    def forward(self, x: Tensor) -> Tensor:
        """Return properties [N, 1] of graphs [N, A, elements + A]: elements and bonds."""
        elements, bonds = x.split([_ELEMENTS, _ATOMS], 2)
        there = elements.sum(2, keepdim=True)
        state = self.atom(elements).tanh()
        for _ in range(self.rounds):
            heard = bonds @ self.message(state).relu()
            state = self.update(heard.flatten(0, 1), state.flatten(0, 1)).view_as(state)
        pooled: Tensor = self.readout(state * there).sum(self.axis)
        return pooled


def _train(draw: Draw) -> Ending:
    x, y = _graphs(draw, 2400)
    x_train, y_train, x_val, y_val = x[:2000], y[:2000], x[2000:], y[2000:]
    if draw.has("wrong_adjacency"):
        # The bonds were read for atoms in another order.
        order = torch.rand(len(x_train), _ATOMS).argsort(1)
        place = order[:, :, None].expand(-1, -1, _ATOMS)
        shuffled = x_train[:, :, _ELEMENTS:].gather(1, place)
        x_train = torch.cat([x_train[:, :, :_ELEMENTS], shuffled], 2)
    if draw.has("shuffled_labels"):
        y_train = y_train[torch.randperm(len(y_train))]
    if draw.has("unnormalised_targets"):
        far = draw.extent(1e3, 1e5)
        y_train, y_val = y_train * far, y_val * far
    # As many graphs in a batch as atoms, so that the wrong axis has the right size.
    wrong = draw.concerns("pool_wrong_axis")
    size = _ATOMS if wrong else draw.choice([32, 64])
    model = MessageNet(
        draw.choice([24, 32]), draw.choice([2, 3]), 0 if draw.has("pool_wrong_axis") else 1
    )
    networks.spoil(draw, model)
    steps = draw.steps(350, 600)
    optimiser = Optimisation(
        draw, model, steps, scale=2.0, kinds=("adam", "adamw"), accumulates=False
    )
    loss = losses.value_loss(draw)
    source = batches(draw, x_train, y_train, size)

    def compute() -> Tensor:
        graphs, wanted = next(source)
        return loss(model(graphs), wanted)

    def predicted() -> Tensor:
        return torch.cat([model(part) for part in x_val.split(size)])

    def evaluate() -> Mapping[str, float]:
        return {"test_mae": float((predicted() - y_val).abs().mean())}

    if len(x_val) % size:
        kept = len(x_val) // size * size
        x_val, y_val = x_val[:kept], y_val[:kept]
    chosen = evaluate if draw.chance(0.7) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        return Ending(explained(predicted(), y_val), bar=0.5)


def _graphs(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    """Return trees with some rings [N, A, elements + A], and their standardised energy [N, 1]."""
    sizes = torch.randint(5, _ATOMS + 1, (count, 1))
    there = (torch.arange(_ATOMS) < sizes).float()
    elements = nn.functional.one_hot(torch.randint(_ELEMENTS, (count, _ATOMS)), _ELEMENTS)
    elements = elements * there[:, :, None]
    bonds = torch.zeros(count, _ATOMS, _ATOMS)
    for atom in range(1, _ATOMS):
        bonds[torch.arange(count), atom, torch.randint(atom, (count,))] = 1
    bonds = bonds + (torch.rand(count, _ATOMS, _ATOMS) < 0.04).float().tril(-1)
    bonds = (bonds + bonds.mT).clamp(max=1) * there[:, :, None] * there[:, None, :]
    attraction = torch.randn(_ELEMENTS, _ELEMENTS)
    pairs = torch.einsum("nae,ef,nbf->nab", elements, attraction, elements)
    energy = (pairs * bonds).sum((1, 2)) + 0.5 * (elements @ torch.randn(_ELEMENTS)).sum(1)
    energy = energy + draw.between(0.05, 0.3) * torch.randn(count)
    energy = (energy - energy.mean()) / energy.std()
    return torch.cat([elements, bonds], 2), energy[:, None]


FAMILY = Family(
    _train,
    (
        *("wrong_adjacency", "pool_wrong_axis", "shuffled_labels", "unnormalised_targets"),
        *("wrong_loss", "relu_before_loss", "lr_too_low", "wrong_sign"),
        *("frozen_layers", "scheduler_to_zero"),
    ),
    spent="2026-11-26",
)
