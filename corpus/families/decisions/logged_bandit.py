"""A policy from the log of another one: rewards, weighted by how likely their actions were.

After Swaminathan and Joachims, "Counterfactual risk minimization", ICML 2015, with clipped and
self-normalised weights.

Shape legend: N log entries, F features of a context, A actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.optimisation import Optimisation


class World(NamedTuple):
    """Contexts [N, F], mean rewards [N, A] and the chances of the logging policy [N, A]."""

    context: Tensor
    mean: Tensor
    chances: Tensor


def _train(draw: Draw) -> Ending:
    actions, features = draw.choice([4, 6]), draw.choice([8, 12])
    world = _world(draw, draw.choice([4000, 6000]), features, actions)
    taken = torch.multinomial(world.chances, 1)[:, 0]
    reward = torch.bernoulli(world.mean.gather(1, taken[:, None])[:, 0])
    chance = world.chances.gather(1, taken[:, None])[:, 0]
    if draw.has("misaligned_targets"):
        # The table of the rewards is in another order.
        reward = reward[torch.randperm(len(reward))]
    if draw.has("swapped_ids"):
        taken = (taken + 1) % actions
    if draw.has("constant_inputs"):
        world = world._replace(context=torch.zeros_like(world.context) + world.context[:1])
    kept = 3 * len(reward) // 4
    model = networks.mlp(draw, features, actions, depth=(1, 2), most=64)
    size, epochs = draw.choice([64, 128]), draw.whole(15, 25)
    steps = epochs * (kept // size)
    draw.epoch = kept // size
    draw.watch.expect(steps)
    optimiser = Optimisation(
        draw, model, steps, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    columns = (world.context, taken, reward, chance)
    log = TensorDataset(*(one[:kept] for one in columns))
    loader = DataLoader(log, batch_size=size, shuffle=True, drop_last=True)
    draw.watch.begin(model, optimiser.optimizer)
    most, baseline = draw.choice([10.0, 30.0]), float(reward[:kept].mean())

    def loss(x: Tensor, action: Tensor, gain: Tensor, known: Tensor) -> Tensor:
        now = model(x).softmax(1).gather(1, action[:, None])[:, 0]
        weight = (now / known).clamp(max=most)
        if draw.has("detached_log_probability"):
            weight = weight.detach() + 0.0 * now
        value = (weight * (gain - baseline)).mean()
        total: Tensor = value if draw.has("term_wrong_sign") else -value
        return total

    for _ in range(epochs):
        model.train()
        for batch in loader:
            optimiser.step(lambda batch=batch: loss(*batch))  # type: ignore[misc]
        if draw.has("train_eval_mode"):
            model.eval()
    model.eval()
    with torch.no_grad():
        policy = model(world.context[kept:]).argmax(1, keepdim=True)
        mean = world.mean[kept:]
        reached = float(mean.gather(1, policy).mean())
        least, best = float(mean.mean()), float(mean.max(1).values.mean())
    return Ending((reached - least) / (best - least), bar=0.55)


def _world(draw: Draw, count: int, features: int, actions: int) -> World:
    context = torch.randn(count, features)
    inner = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, actions))
    with torch.no_grad():
        scores = inner(context)
        scores = 2.5 * (scores - scores.mean(0)) / scores.std(0)
        logged = draw.between(0.3, 0.8) * torch.randn(features, actions) / features**0.5
        return World(context, scores.sigmoid(), (context @ logged).softmax(1))


FAMILY = Family(
    _train,
    (
        *("misaligned_targets", "swapped_ids", "constant_inputs", "term_wrong_sign"),
        *("detached_log_probability", "wrong_sign"),
        *("lr_too_low", "large_init", "scheduler_per_batch", "wrong_parameters", "adam_epsilon"),
    ),
    spent="2026-11-26",
)
