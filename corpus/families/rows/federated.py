"""Clients that train copies of a model on their own rows; a server averages them.

After McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
AISTATS 2017.

Shape legend: N rows, C classes.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained
from corpus.optimisation import Optimisation


def _train(draw: Draw) -> Ending:
    classes, features = draw.choice([3, 5, 8]), draw.choice([12, 20])
    centres = draw.numpy.normal(size=(classes, features))
    y = draw.numpy.integers(0, classes, 2400)
    x = centres[y] + draw.between(0.7, 1.1) * draw.numpy.normal(size=(2400, features))
    x = (x - x.mean(0)) / x.std(0)
    data = rows_of(draw, x, y, classes=classes)
    shares = _shares(draw, data.y, draw.choice([3, 4, 5]))
    model = networks.mlp(draw, features, classes, depth=(1, 2), most=48)
    server = copy.deepcopy(model)
    local, rounds = draw.choice([5, 10]), draw.whole(25, 45)
    steps = local * rounds * len(shares)
    draw.watch.expect(steps)
    optimiser = Optimisation(
        draw, model, steps, scale=0.7, kinds=("sgd", "momentum"), accumulates=False
    )
    draw.watch.begin(model, optimiser.optimizer)

    def batch(rows: Tensor) -> Tensor:
        chosen = rows[torch.randint(len(rows), (32,))]
        return F.cross_entropy(model(data.x[chosen]), data.y[chosen])

    for number in range(rounds):
        returned = []
        for rows in shares:
            model.load_state_dict(server.state_dict())
            model.train()
            for _ in range(local):
                optimiser.step(partial(batch, rows))
            returned.append(copy.deepcopy(model.state_dict()))
        _average(draw, server, returned)
        if number % 5 == 4:
            with draw.watch.evaluating(), evaluation(draw, server):
                draw.watch.metric("global_acc", accuracy(server(data.x_val), data.y_val))
    with evaluation(draw, server):
        return Ending(gained(accuracy(server(data.x_val), data.y_val), 1 / classes), bar=0.6)


def _shares(draw: Draw, y: Tensor, clients: int) -> list[Tensor]:
    """Return the rows of each client; some kinds are rarer with some of them."""
    classes = int(y.max()) + 1
    weights = draw.numpy.dirichlet(np.full(clients, 2.0), classes)
    owner = torch.multinomial(torch.tensor(weights)[y], 1)[:, 0]
    rows = [(owner == one).nonzero()[:, 0] for one in range(clients)]
    return [one for one in rows if len(one) > 8]


def _average(draw: Draw, server: nn.Module, returned: list[dict[str, Tensor]]) -> None:
    """Let the server take the mean of the clients' models."""
    if draw.has("stale_average"):
        return
    count = len(returned)
    if draw.has("sum_not_mean"):
        count = 1
    mean = {}
    for name, first in returned[0].items():
        if first.is_floating_point():
            mean[name] = torch.stack([one[name] for one in returned]).sum(0) / count
        else:
            mean[name] = first
    server.load_state_dict(mean)


FAMILY = Family(
    _train,
    (
        *("stale_average", "sum_not_mean", "shuffled_labels", "off_by_one"),
        *("constant_inputs", "lr_too_high", "lr_too_low"),
        *("wrong_sign", "not_in_optimizer", "zero_init"),
    ),
    spent="2026-11-26",
)
