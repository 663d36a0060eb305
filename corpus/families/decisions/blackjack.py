"""Whether to take another card: how games end is learned by a network, from games at random.

After Sutton and Barto, "Reinforcement learning: an introduction", 2018, chapter 5.

Shape legend: N hands.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_GAMES, _TRIALS = 4000, 8000
# Mean rewards of a player that takes no card, and of one that takes cards below 15.
_CHANCE, _SKILL = -0.24, -0.09

Player = Callable[[Tensor, Tensor], Tensor]


def _train(draw: Draw) -> Ending:
    hands, acts, ends = _games(_GAMES, _explore)
    x, y = _prepared(draw, hands, ends)
    width = draw.choice([24, 32])
    head = nn.Linear(width, 2)
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head)
    )
    spoil(draw, model)
    length = plan(draw, len(x), [64, 80], (7, 9))
    rate = learning_rate(draw, 2e-3, 4e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    loss_fn = draw.watch.loss(F.mse_loss)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        for picked in torch.randperm(len(x)).split(length.size)[: length.batches]:
            values = model(x[picked])
            worth = values.gather(1, acts[picked][:, None])
            if not draw.has("wrong_broadcast"):
                worth = worth[:, 0]
            loss = loss_fn(worth, y[picked])
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            if not draw.has("missing_step"):
                optimizer.step()

    def greedy(own: Tensor, dealer: Tensor) -> Tensor:
        values = model(_scaled(draw, torch.stack([own, dealer], 1)))
        taken: Tensor = values[:, 1] > values[:, 0]
        return taken

    with draw.watch.evaluating(), torch.no_grad():
        reached = float(_games(_TRIALS, greedy, first_only=True)[2].mean())
        draw.watch.metric("mean_reward", reached)
    return Ending((reached - _CHANCE) / (_SKILL - _CHANCE), bar=0.5, margin=0.25)


def _explore(own: Tensor, _: Tensor) -> Tensor:
    """Return what a careful player does, and at times its opposite."""
    return (own < 14) ^ (torch.rand(own.shape) < 0.3)


def _prepared(draw: Draw, hands: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return hands as inputs, and rewards, with the drawn fault if there is one."""
    x = _scaled(draw, hands)
    return draw.by_fault(
        {
            "shuffled_labels": (x, ends[torch.randperm(len(ends))]),
            "constant_inputs": (torch.zeros_like(x), ends),
        },
        (x, ends),
    )


def _scaled(draw: Draw, hands: Tensor) -> Tensor:
    """Return inputs float32 [N, 2] of the sums of the player and the card of the dealer."""
    if draw.has("unnormalised_inputs"):
        # Codes of cards, as a table of the casino has them.
        return 1e4 + 1e3 * hands
    return (hands - torch.tensor([13.0, 6.0])) / torch.tensor([5.0, 3.0])


def _games(
    count: int, player: Player, *, first_only: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Play games, and return what was known [N, 2], what was done [N], and how games ended [N].

    Args:
        count: number of games.
        player: says of sums and of cards of the dealer, both [N], whether to take a card.
        first_only: only the first decision of each game is returned.
    """
    dealer = _card(count)
    own = 4 + torch.randint(17, (count,)).float()
    playing = torch.ones(count, dtype=torch.bool)
    known, acts, rows = [], [], []
    for _ in range(8):
        takes = player(own, dealer) & playing
        known.append(torch.stack([own, dealer], 1)[playing])
        acts.append(takes[playing].long())
        rows.append(torch.arange(count)[playing])
        own = own + takes * _card(count)
        playing = takes & (own <= 21)
    house = dealer
    for _ in range(8):
        house = house + (house < 17) * _card(count)
    better = ((own > house) | (house > 21)).float() - ((own < house) & (house <= 21)).float()
    ends = torch.where(own > 21, -1.0, better)
    if first_only:
        return known[0], acts[0], ends
    return torch.cat(known), torch.cat(acts), ends[torch.cat(rows)]


def _card(count: int) -> Tensor:
    return torch.randint(1, 14, (count,)).clamp(max=10).float()


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "shuffled_labels", "constant_inputs"),
        *(
            "wrong_broadcast",
            "wrong_sign",
            "missing_step",
            "zero_init",
            "lr_too_low",
            "lr_too_high",
        ),
    ),
    spent="2026-11-28",
)
