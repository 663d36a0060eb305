"""Several answers to one input: a mixture density network.

After Bishop, "Mixture density networks", 1994.

Shape legend: N rows, K components.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.data.rows import TARGET_FAULTS, batches, rows_of
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.optimisation import Optimisation

_Mixture = tuple[Tensor, Tensor, Tensor]


class Mixture(nn.Module):
    """Scores of the components, their means, and the logarithms of their deviations."""

    def __init__(self, draw: Draw, features: int, components: int) -> None:
        super().__init__()
        self.net = networks.mlp(draw, features, 3 * components, depth=(1, 2), most=96)

    def forward(self, x: Tensor) -> _Mixture:
        """Return three tensors [N, K]."""
        scores, mean, log_deviation = self.net(x).chunk(3, dim=1)
        return scores, mean, log_deviation


def _surprise(mixture: _Mixture, y: Tensor, *, axis: int = 1, sign: float = 1.0) -> Tensor:
    """Return the mean negative log-density of targets [N, 1], in nats."""
    scores, mean, log_deviation = mixture
    distance = (y - mean) * (-log_deviation).exp()
    parts = scores.log_softmax(axis) - 0.5 * distance.square() - sign * log_deviation
    return 0.5 * math.log(2 * math.pi) - parts.logsumexp(1).mean()


def _train(draw: Draw) -> Ending:
    x, y = _branches(draw)
    data = rows_of(draw, x.numpy(), y.numpy())
    x_train = data.x.clone()
    if draw.has("target_leak"):
        x_train[:, -1] = data.y[:, 0]
    model = Mixture(draw, x.shape[1], draw.choice([4, 6, 8]))
    steps = draw.steps(350, 900)
    optimiser = Optimisation(
        draw, model, steps, scale=1.5, kinds=("adam", "adamw", "rmsprop"), accumulates=False
    )
    sign = draw.by_fault({"term_left_out": 0.0, "term_wrong_sign": -1.0}, 1.0)
    axis = 0 if draw.has("softmax_wrong_axis") else 1

    def surprise(mixture: _Mixture, wanted: Tensor) -> Tensor:
        return _surprise(mixture, wanted, axis=axis, sign=sign)

    loss = draw.watch.loss(surprise)
    source = batches(draw, x_train, data.y, draw.choice([64, 128, 256]))

    def compute() -> Tensor:
        batch, wanted = next(source)
        return loss(model(batch), wanted)

    def evaluate() -> Mapping[str, float]:
        return {"val_nll": float(_surprise(model(data.x_val), data.y_val))}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    with evaluation(draw, model):
        reached = float(_surprise(model(data.x_val), data.y_val))
    trivial = float(data.y_val.std().log()) + 0.5 * math.log(2 * math.pi * math.e)
    # Of a Gaussian's perplexity, the share that is saved.
    return Ending(1 - math.exp(min(5.0, reached - trivial)), bar=0.35)


def _branches(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return inputs [N, 4] and targets [N, 1] that lie on one of several branches."""
    count, branches, noise = (
        draw.choice([1500, 3000]),
        draw.choice([2, 3]),
        draw.between(0.05, 0.15),
    )
    x = torch.randn(count, 4)
    way = x @ torch.randn(4, 1) / 2
    which = torch.randint(branches, (count, 1)) - (branches - 1) / 2
    y = torch.sin(way) + 1.5 * which + noise * torch.randn(count, 1)
    return x, (y - y.mean()) / y.std()


FAMILY = Family(
    _train,
    (
        *("term_left_out", "term_wrong_sign", "softmax_wrong_axis", "target_leak"),
        *TARGET_FAULTS,
        *("same_batch", "ruinous_augmentation", "zero_init", "large_init"),
        *("lr_too_high", "lr_too_low", "late_jump", "weight_decay_too_high", "missing_zero_grad"),
    ),
    spent="2026-11-25",
)
