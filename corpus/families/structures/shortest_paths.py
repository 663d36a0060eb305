"""Distances in small networks of roads, found by messages as the Bellman-Ford algorithm does.

After Veličković et al., "Neural execution of graph algorithms", ICLR 2020.

Shape legend: N graphs, 8 nodes, H numbers of a node.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import explained

_NODES, _STEPS, _FAR = 8, 4, 3.0


class Messages(nn.Module):
    """Distances [N, 8] of all nodes after each of some rounds of messages."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.begin = nn.Linear(1, width)
        self.sent, self.received = nn.Linear(width, width), nn.Linear(width, width)
        self.road = nn.Linear(1, width)
        self.message = nn.Linear(width, width)
        self.cell = nn.GRUCell(width, width)
        self.told = nn.Linear(width, 1)

    def forward(self, first: Tensor, roads: Tensor) -> list[Tensor]:
        """Return the distances.

        Args:
            first: 0 at the node where one begins, and 3 at all others [N, 8].
            roads: lengths [N, 8, 8]; infinite where there is none.
        """
        there = roads.isfinite()
        length = self.road(roads.where(there, 0.0)[..., None])
        state, found = self.begin(first[..., None]), []
        for _ in range(_STEPS):
            pairs = self.sent(state)[:, None] + self.received(state)[:, :, None] + length
            said = self.message(pairs.relu()).masked_fill(~there[..., None], -1e9)
            best = said.max(2).values
            state = self.cell(best.flatten(0, 1), state.flatten(0, 1)).view_as(state)
            found.append(self.told(state)[..., 0])
        return found


def _train(draw: Draw) -> Ending:
    share = draw.between(0.25, 0.35)
    roads = _roads(900, share)
    hints, held = _walked(roads), 700
    given, known = _spoilt(draw, roads[:held], [one[:held] for one in hints])
    first = torch.full((len(roads), _NODES), _FAR)
    first[:, 0] = 0.0
    if draw.has("constant_inputs"):
        # All nodes look like any other.
        first.fill_(_FAR)
    model = Messages(draw.choice([24, 32]))
    networks.spoil(draw, model)
    size, steps = draw.choice([28, 35]), draw.steps(280, 400)
    rate = draw.between(3e-3, 5e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": 1000.0}, 1.0)
    weights = list(model.parameters())
    if draw.has("not_in_optimizer"):
        weights = list(model.told.parameters())
    optimizer = torch.optim.Adam(weights, lr=rate)
    draw.watch.begin(model, optimizer)
    for step in range(1, steps + 1):
        rows = torch.randint(held, (size,))
        found = model(first[rows], given[rows])
        losses = [(one - known[at][rows]).square().mean() for at, one in enumerate(found)]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 70 == 0:
            with draw.watch.evaluating(), torch.no_grad():
                last = model(first[held:], roads[held:])[-1]
                draw.watch.metric("test/mae", float((last - hints[-1][held:]).abs().mean()))
    with torch.no_grad():
        last = model(first[held:], roads[held:])[-1]
    return Ending(max(-1.0, explained(last[:, 1:], hints[-1][held:, 1:])), bar=0.6)


def _spoilt(draw: Draw, roads: Tensor, hints: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the roads and the distances with the drawn fault, if there is one."""
    if draw.has("wrong_adjacency"):
        # The rows are in another order than the columns.
        return roads.roll(3, 1), hints
    if draw.has("misaligned_targets"):
        return roads, [one.roll(1, 0) for one in hints]
    if draw.has("unnormalised_targets"):
        return roads, [1e4 * one for one in hints]
    if draw.has("unnormalised_inputs"):
        return 1e5 * roads, hints
    return roads, hints


def _walked(roads: Tensor) -> list[Tensor]:
    """Return the distances [N, 8] from the first node after one more road each time."""
    distance = torch.full(roads.shape[:2], _FAR)
    distance[:, 0] = 0.0
    found = []
    for _ in range(_STEPS):
        distance = torch.minimum(distance, (roads + distance[:, None]).min(2).values)
        found.append(distance)
    return found


def _roads(count: int, share: float) -> Tensor:
    """Return lengths float32 [count, 8, 8]; infinite where there is no road."""
    length = 0.1 + 0.9 * torch.rand(count, _NODES, _NODES)
    there = torch.rand(count, _NODES, _NODES) < share
    there = there | there.mT
    roads = torch.where(there, (length + length.mT) / 2, torch.inf)
    # A ring, so that every node can be reached.
    for node in range(_NODES):
        after = (node + 1) % _NODES
        roads[:, node, after] = roads[:, after, node] = length[:, node, after]
    roads.diagonal(dim1=1, dim2=2).zero_()
    return roads


FAMILY = Family(
    _train,
    (
        *("wrong_adjacency", "misaligned_targets", "unnormalised_targets", "constant_inputs"),
        *("lr_too_low", "lr_too_high", "not_in_optimizer", "wrong_sign", "zero_init"),
        *("large_init", "detached_graph"),
    ),
    spent="2026-11-27",
)
