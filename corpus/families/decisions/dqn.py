"""Deep Q-learning in a tiny environment: the loss may rise while the returns do."""

from __future__ import annotations

import copy
import random

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.corridor import Corridor, mean_return
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.losses import Loss
from corpus.optimisation import Optimisation

_Move = tuple[Tensor, int, float, Tensor, bool]


def _train(draw: Draw) -> Ending:
    world = Corridor(draw.choice([4, 5, 6]), draw.random.getrandbits(31))
    width = draw.choice([32, 64, 96])
    model = nn.Sequential(
        nn.Linear(world.size**2, width), nn.ReLU(), nn.Linear(width, world.actions)
    )
    networks.spoil(draw, model)
    target = copy.deepcopy(model)
    steps, every = draw.steps(500, 1200), draw.choice([20, 50, 100])
    optimiser = Optimisation(
        draw, model, steps, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    draw.watch.begin(model, optimiser.optimizer)
    kinds_of_loss: list[Loss] = [nn.SmoothL1Loss(), F.mse_loss]
    loss = draw.watch.loss(draw.choice(kinds_of_loss))
    discount, choose = draw.choice([0.9, 0.95]), random.Random(draw.random.getrandbits(31))
    buffer: list[_Move] = []
    state = world.reset()

    def compute() -> Tensor:
        moves = choose.sample(buffer, 32)
        states, actions, rewards, nexts, ended = zip(*moves, strict=True)
        with torch.no_grad():
            ahead = target(torch.stack(nexts)).max(1).values
        gained = torch.tensor(rewards) * (-1 if draw.has("term_wrong_sign") else 1)
        wanted = gained + discount * ahead * (1 - torch.tensor(ended, dtype=torch.float32))
        values = model(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])
        return loss(values[:, 0], wanted)

    for step in range(steps):
        for _ in range(2 if step else 64):
            lost = max(0.05, 1 - 2 * step / steps)
            if choose.random() < lost:
                action = choose.randrange(world.actions)
            else:
                action = _best(model, state)
            following, reward, ended = world.step(action)
            if not (draw.has("stale_buffer") and len(buffer) >= 64):
                buffer.append((state, action, reward, following, ended))
            state = world.reset() if ended else following
        optimiser.step(compute)
        if step % every == 0 and not draw.has("stale_target"):
            target.load_state_dict(model.state_dict())
    return Ending(mean_return(world, lambda one: _best(model, one), 60), bar=0.7, margin=0.25)


@torch.no_grad()
def _best(model: nn.Module, state: Tensor) -> int:
    return int(model(state).argmax())


FAMILY = Family(
    _train,
    (
        *("lr_too_high", "lr_too_low", "late_jump", "scheduler_to_zero", "scheduler_per_batch"),
        *("wrong_parameters", "not_in_optimizer", "frozen_layers", "missing_zero_grad"),
        *("wrong_sign", "weight_decay_too_high", "adam_epsilon", "zero_init", "large_init"),
        *("detached_graph", "stale_target", "stale_buffer", "term_wrong_sign"),
    ),
    spent="2026-11-23",
)
