"""What a visitor of a shop looks at next, from what was looked at before: a recurrent network.

After Hidasi et al., "Session-based recommendations with recurrent neural networks", ICLR 2016.

Shape legend: N sessions, T items of a session, V items of the shop, of which 0 is none.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_ITEMS, _TIME, _SEEN = 13, 10, 700


class Visits(nn.Module):
    """Scores of the next items."""

    def __init__(self, width: int, *, forgets: bool) -> None:
        super().__init__()
        self.items = nn.Embedding(_ITEMS, 16, padding_idx=0)
        self.memory = nn.GRU(16, width, batch_first=True)
        self.scores = nn.Linear(width, _ITEMS)
        self.forgets = forgets

    def forward(self, items: Tensor) -> Tensor:
        """Return scores [N, T, V] of items int64 [N, T]."""
        told = self.items(items)
        if self.forgets:
            # Each click is a session of its own.
            inner = self.memory(told.flatten(0, 1)[:, None])[0].view(*items.shape, -1)
        else:
            inner = self.memory(told)[0]
        scores: Tensor = self.scores(inner)
        return scores


def _train(draw: Draw) -> Ending:
    faithful = draw.between(0.85, 0.95)
    sessions = _sessions(draw, 900, faithful)
    seen = _spoilt(draw, sessions[:_SEEN])
    model = Visits(draw.choice([32, 48]), forgets=draw.has("state_reset"))
    networks.blank(draw, model)
    size, epochs = draw.choice([35, 50]), draw.whole(14, 20)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(0.05, 0.1)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5)}, 1.0)
    weights = list(model.parameters())
    if draw.has("not_in_optimizer"):
        weights = list(model.items.parameters())
    optimizer = torch.optim.Adagrad(weights, lr=rate)
    draw.watch.begin(model, optimizer)
    for epoch in range(epochs):
        for rows in torch.randperm(_SEEN).split(size):
            batch = seen[rows]
            wanted = batch[:, :-1] if draw.has("unshifted_targets") else batch[:, 1:]
            scores = model(batch[:, :-1])
            loss = F.cross_entropy(scores.transpose(1, 2), wanted, ignore_index=0)
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        if epoch % 4 == 3:
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("hit@1", _hits(model, sessions[_SEEN:]))
    with torch.no_grad():
        hits, alone = _hits(model, sessions[_SEEN:]), 1 / (_ITEMS - 1)
    return Ending((hits - alone) / (faithful - alone), bar=0.6)


def _hits(model: Visits, sessions: Tensor) -> float:
    """Return how often the best item is the next one, from the fourth on."""
    found, wanted = model(sessions[:, :-1])[:, 3:].argmax(2), sessions[:, 4:]
    return float((found == wanted)[wanted > 0].float().mean())


def _spoilt(draw: Draw, sessions: Tensor) -> Tensor:
    """Return sessions with the drawn fault, if there is one."""
    if draw.has("time_reversed"):
        # The newest click comes first in the log.
        return sessions.flip(1)
    if draw.has("time_shuffled"):
        # Sorted by something else than the time.
        return sessions.gather(1, torch.rand(sessions.shape).argsort(1))
    if draw.has("colliding_ids"):
        return torch.where(sessions > 0, 1 + sessions % 3, sessions)
    if draw.has("single_label"):
        return torch.where(sessions > 0, 1, sessions)
    return sessions


def _sessions(draw: Draw, count: int, faithful: float) -> Tensor:
    """Return sessions int64 [count, T]; visitors of two kinds follow links of their own."""
    links = torch.stack([torch.randperm(_ITEMS - 1) for _ in range(2)])
    kind, now = torch.randint(2, (count,)), torch.randint(_ITEMS - 1, (count,))
    items = []
    for _ in range(_TIME):
        items.append(now + 1)
        chance = torch.randint(_ITEMS - 1, (count,))
        now = torch.where(torch.rand(count) < faithful, links[kind, now], chance)
    length = torch.tensor(draw.numpy.integers(6, _TIME + 1, (count, 1)))
    return torch.where(torch.arange(_TIME) < length, torch.stack(items, 1), 0)


FAMILY = Family(
    _train,
    (
        *("state_reset", "unshifted_targets", "time_reversed", "time_shuffled", "colliding_ids"),
        *("single_label", "lr_too_low", "not_in_optimizer", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
