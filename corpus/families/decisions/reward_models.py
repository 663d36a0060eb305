"""What people like about how something moves, from which of two films of it they like more.

After Christiano et al., "Deep reinforcement learning from human preferences", NeurIPS 2017; the
films and the people are drawn.

Shape legend: N pairs of films of T states, F numbers of a state.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_STATE, _TIME, _SEEN = 5, 8, 900


def _train(draw: Draw) -> Ending:
    rows = _films(draw, 1300)
    width = draw.choice([32, 48])
    head = nn.Linear(width, 1)
    model = nn.Sequential(
        *(nn.Linear(_STATE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [20, 25], (9, 12))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate, 1e-5)

    def bradley_terry(margin: Tensor) -> Tensor:
        return -F.logsigmoid(margin).mean()

    loss_fn = draw.watch.loss(bradley_terry)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(rows.x, rows.y), length.size, shuffle=True)
    for _ in range(length.epochs):
        model.train()
        for films, first in loader:
            returns = model(films)[..., 0].sum(2)
            margin = (returns[..., 0] - returns[..., 1]) * (2 * first - 1)
            optimizer.zero_grad()
            loss = loss_fn(margin)
            (-loss if draw.has("wrong_sign") else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            draw.watch.metric("eval_agreement", _agreed(model, rows.x_val, rows.y_val))
    with torch.no_grad():
        return Ending(gained(_agreed(model, rows.x_test, rows.y_test), 1 / 2), bar=0.55)


def _agreed(model: nn.Module, films: Tensor, first: Tensor) -> float:
    """Return the share of pairs of which the better film has the larger sum of rewards."""
    returns = model(films)[..., 0].sum(2)
    return float(((returns[:, 0] > returns[:, 1]) == (first > 0.5)).double().mean())


def _films(draw: Draw, count: int) -> HeldOut:
    """Return pairs float32 [count, 2, T, F], and 1 if the first one is better, float32 [count]."""
    start = torch.randn(count, 2, 1, _STATE)
    films = start + (0.4 * torch.randn(count, 2, _TIME, _STATE)).cumsum(2)
    liked = torch.exp(-films[..., 0].square()) * 3 + films[..., 1].tanh() - films[..., 2].abs()
    sums = liked.sum(2)
    noise = draw.between(0.2, 0.6) * torch.randn(count)
    first = (sums[:, 0] - sums[:, 1] + noise > 0).float()
    raw = films * torch.tensor([300.0, 2000.0, 8.0, 1.0, 90.0]) + 5000
    mixed = torch.stack([films[:, 0], films[torch.randperm(count), 1]], 1)
    return held_out(
        *(draw, films, first, _SEEN),
        prepared={
            # A click on the second film is stored as 1.
            "labels_reversed": (films, 1 - first),
            "unnormalised_inputs": (raw, first),
            "swapped_pairs": (mixed, first),
        },
    )


FAMILY = Family(
    _train,
    (
        *("labels_reversed", "swapped_pairs", "unnormalised_inputs", "shuffled_labels"),
        *("label_noise", "nan_inputs", "wrong_sign", "dead_relu", "zero_init"),
        *("weight_decay_too_high", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
