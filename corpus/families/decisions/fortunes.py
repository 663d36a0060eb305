"""How much each move through a maze will bring, as a distribution: categorical Q-learning.

After Bellemare, Dabney and Munos, "A distributional perspective on reinforcement learning", ICML
2017.

Shape legend: B moves of a batch, A actions, Z values of returns.
"""

from __future__ import annotations

import copy
import random

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.corridor import Corridor, mean_return
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, trained
from corpus.family import Ending, Family

_ATOMS, _DISCOUNT = 21, 0.9
_Move = tuple[Tensor, int, float, Tensor, bool]


def _train(draw: Draw) -> Ending:
    world = Corridor(draw.choice([4, 5]), draw.random.getrandbits(31))
    width = draw.choice([48, 64])
    head = nn.Linear(width, world.actions * _ATOMS)
    model = nn.Sequential(nn.Linear(world.size**2, width), nn.ReLU(), head)
    networks.spoil(draw, model)
    target = copy.deepcopy(model)
    # Returns are between -0.4 and 1.
    support = torch.linspace(-0.5, 1.1, _ATOMS)
    steps, every = draw.steps(450, 600), draw.choice([15, 25])
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, head), rate)
    choose = random.Random(draw.random.getrandbits(31))

    def distribution(network: nn.Module, states: Tensor) -> Tensor:
        scores: Tensor = network(states).reshape(len(states), world.actions, _ATOMS)
        # Over the actions, and not over the returns.
        return scores.log_softmax(1 if draw.has("softmax_wrong_axis") else 2)

    def best(state: Tensor) -> int:
        with torch.no_grad():
            return int((distribution(model, state[None]).exp() @ support).argmax())

    def cross_entropy(log: Tensor, wanted: Tensor) -> Tensor:
        return -(wanted * log).sum(1).mean()

    loss_fn = draw.watch.loss(cross_entropy)
    draw.watch.begin(model, optimizer)
    memory: list[_Move] = []
    state, total = world.reset(), 0.0
    for step in range(steps):
        for _ in range(2 if step else 100):
            lost = choose.random() < max(0.05, 1 - 2 * step / steps)
            action = choose.randrange(world.actions) if lost else best(state)
            following, reward, ended = world.step(action)
            total += reward
            paid = -reward if draw.has("term_wrong_sign") else reward
            memory.append((state, action, paid, following, ended))
            state = world.reset() if ended else following
        oldest = memory[:32] if draw.has("stale_buffer") else memory
        states, actions, rewards, nexts, ends = zip(*choose.choices(oldest, k=32), strict=True)
        going = 1 - torch.tensor(ends, dtype=torch.float32)
        with torch.no_grad():
            ahead = distribution(target, torch.stack(nexts)).exp()
            chosen = ahead[torch.arange(32), (ahead @ support).argmax(1)]
            wanted = _projected(chosen, torch.tensor(rewards), _DISCOUNT * going, support)
        log = distribution(model, torch.stack(states))[torch.arange(32), torch.tensor(actions)]
        loss = loss_fn(log, wanted)
        optimizer.zero_grad()
        (-loss if draw.has("wrong_sign") else loss).backward()
        optimizer.step()
        if step % every == 0 and not draw.has("stale_target"):
            target.load_state_dict(model.state_dict())
        if step % 50 == 49:
            draw.watch.metric("reward_per_move", total / 100)
            total = 0.0
    return Ending(mean_return(world, best, 60), bar=0.6, margin=0.25)


def _projected(ahead: Tensor, rewards: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Return distributions [B, Z] of rewards [B] and discounted returns [B, Z] on the support."""
    low, gap = support[0], support[1] - support[0]
    moved = rewards[:, None] + discount[:, None] * support
    place = ((moved - low) / gap).clamp(0, _ATOMS - 1)
    below = place.floor().long().clamp(max=_ATOMS - 2)
    share = place - below
    made = torch.zeros_like(ahead)
    made.scatter_add_(1, below, ahead * (1 - share))
    return made.scatter_add_(1, below + 1, ahead * share)


FAMILY = Family(
    _train,
    (
        *("term_wrong_sign", "stale_target", "stale_buffer", "softmax_wrong_axis", "wrong_sign"),
        *("large_init", "wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
