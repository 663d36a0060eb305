"""Measures of a training's outcome, as named in ``expect`` of a case."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.faults.data import mixed_axes
from benchmarks.faults.history import Trained
from benchmarks.faults.targets import correct, targets

__all__ = ["MEASURES", "predicted"]


@torch.no_grad()
def predicted(trained: Trained, x: Tensor) -> Tensor:
    """Return the outputs of the model in eval mode as its loop interprets them, [N, K]."""
    trained.model.eval()
    parts = [mixed_axes(part) if trained.data.mixed else part for part in x.split(trained.chunk)]
    output = torch.cat([trained.model(part) for part in parts])
    return output.softmax(dim=-1) if trained.double_softmax else output


def _accuracy(trained: Trained, x: Tensor, y: Tensor) -> float:
    if not trained.data.classes:
        return math.nan
    output = predicted(trained, x)
    return float(correct(output, y, trained.loss, trained.data.classes).float().mean())


def _r2(trained: Trained, x: Tensor, y: Tensor) -> float:
    """Return R² over all targets, each relative to its own mean."""
    output = predicted(trained, x).double().reshape(len(y), -1)
    wanted = y.double().reshape(len(y), -1)
    spread = (wanted - wanted.mean(0)).square().sum()
    return float(1 - (wanted - output).square().sum() / spread)


def _loss_of(trained: Trained, x: Tensor, y: Tensor) -> float:
    output = predicted(trained, x)
    wanted = targets(y, trained.data.classes, trained.loss, output.shape[-1])
    with torch.no_grad():
        return float(trained.loss_fn(output, wanted))


def _nan(trained: Trained) -> float:
    return float(not all(map(math.isfinite, trained.history.losses)))


def _swings(trained: Trained) -> float:
    """Return the change of accuracy that one in five epochs reaches (AUTOTRAINER's measure)."""
    scores = [epoch.score for epoch in trained.history.epochs]
    return float(np.percentile(np.abs(np.diff(scores)), 80)) if len(scores) > 1 else 0.0


def _loss_noise(trained: Trained) -> float:
    """Return the standard deviation of the losses of the last half over their mean."""
    half = trained.history.losses[len(trained.history.losses) // 2 :]
    return float(np.std(half) / max(abs(float(np.mean(half))), 1e-12))


@torch.no_grad()
def _restless(trained: Trained) -> float:
    """Return the largest difference between two evaluations of the same rows."""
    kept = {name: value.clone() for name, value in trained.model.state_dict().items()}
    trained.model.train(trained.eval_in_train_mode)
    rows = trained.data.x_val[: max(2, trained.chunk)]
    with torch.random.fork_rng():
        first, second = trained.model(rows), trained.model(rows)
    trained.model.load_state_dict(kept)
    return float((first - second).abs().max())


def _still_norms(trained: Trained) -> float:
    """Return whether no running statistic of a batch norm has changed."""
    now = trained.model.state_dict()
    names = [name for name in now if "running_" in name]
    same = all(torch.equal(now[name], trained.first[name]) for name in names)
    return float(bool(names) and same)


def _leak(trained: Trained) -> float:
    """Return the share of validation rows that are also training rows."""
    known = {row.numpy().tobytes() for row in trained.data.x}
    return float(np.mean([row.numpy().tobytes() in known for row in trained.data.x_val]))


def _weights(trained: Trained) -> list[tuple[str, Tensor]]:
    return [(name, one) for name, one in trained.model.named_parameters() if one.ndim > 1]


@torch.no_grad()
def _change(trained: Trained) -> float:
    """Return the median over weights of norm(W - W0) / norm(W0)."""
    return median(
        float((one - trained.first[name]).norm() / trained.first[name].norm().clamp(min=1e-12))
        for name, one in _weights(trained)
    )


def _unchanged(trained: Trained) -> float:
    """Return the share of the weights that equal their initial values."""
    weights = _weights(trained)
    return sum(torch.equal(one, trained.first[name]) for name, one in weights) / len(weights)


def _gradients(trained: Trained) -> list[Tensor]:
    """Return the final gradients of the weights, on up to 256 training rows."""
    trained.model.eval()
    trained.model.zero_grad()
    data = trained.data
    x = mixed_axes(data.x[:256]) if data.mixed else data.x[:256]
    output = trained.model(x)
    wanted = targets(data.y[:256], data.classes, trained.loss, output.shape[-1])
    loss = trained.loss_fn(output, wanted)
    weights = [one for _, one in _weights(trained) if one.requires_grad]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [
        torch.zeros_like(one) if g is None else g for one, g in zip(weights, found, strict=True)
    ]


def _first_gradient(trained: Trained) -> float:
    return float(_gradients(trained)[0].norm())


def _last_gradient(trained: Trained) -> float:
    return float(_gradients(trained)[-1].norm())


def _gradient_ratio(trained: Trained) -> float:
    gradients = _gradients(trained)
    return float(gradients[0].norm() / gradients[-1].norm().clamp(min=1e-30))


def _zero_gradients(trained: Trained) -> float:
    gradients = _gradients(trained)
    return sum(int((g == 0).sum()) for g in gradients) / sum(g.numel() for g in gradients)


@torch.no_grad()
def _dead_relus(trained: Trained) -> float:
    """Return the share of relu units that no training row activates."""
    trained.model.eval()
    x = mixed_axes(trained.data.x) if trained.data.mixed else trained.data.x
    dead = units = 0
    for module in trained.model.children():
        x = module(x)
        if isinstance(module, nn.ReLU):
            alive = (x > 0).flatten(2).any(dim=2).any(dim=0) if x.ndim > 2 else (x > 0).any(dim=0)
            dead, units = dead + int((~alive).sum()), units + alive.numel()
    return dead / units if units else 0.0


def _majority(trained: Trained) -> float:
    """Return the share of training rows with the most frequent prediction."""
    output = predicted(trained, trained.data.x)
    if output.shape[-1] > 1:
        found = output.argmax(dim=-1)
    else:
        found = (output.reshape(-1) > (0 if "logits" in trained.loss else 0.5)).long()
    return float(torch.bincount(found.reshape(-1)).max() / found.numel())


def _output_spread(trained: Trained) -> float:
    """Return the standard deviation of the outputs over rows, relative to that of the targets."""
    output = predicted(trained, trained.data.x).float()
    wanted = targets(trained.data.y, trained.data.classes, "mse", output.shape[-1]).float()
    return float(output.std(0).mean() / wanted.std(0).mean().clamp(min=1e-12))


def _cosine(trained: Trained) -> float:
    """Return the largest mean cosine between the incoming weights of the units of a layer."""
    means = []
    for _, weight in _weights(trained)[:-1]:
        rows = nn.functional.normalize(weight.detach().flatten(1), dim=1)
        count = len(rows)
        if count > 1:
            means.append(float(((rows @ rows.T).sum() - count) / (count * (count - 1))))
    return max(means, default=0.0)


def _gap(trained: Trained) -> float:
    return MEASURES["acc"](trained) - MEASURES["val_acc"](trained)


def _val_rise(trained: Trained) -> float:
    """Return the last validation loss divided by the best."""
    losses = [loss for _, loss, _ in trained.history.val]
    return losses[-1] / max(min(losses), 1e-12) if losses else math.nan


MEASURES: dict[str, Callable[[Trained], float]] = {
    "acc": lambda it: _accuracy(it, it.data.x, it.data.y),
    "val_acc": lambda it: _accuracy(it, it.data.x_val, it.data.y_val),
    "r2": lambda it: _r2(it, it.data.x, it.data.y),
    "val_r2": lambda it: _r2(it, it.data.x_val, it.data.y_val),
    "train_loss": lambda it: _loss_of(it, it.data.x, it.data.y),
    "val_loss": lambda it: _loss_of(it, it.data.x_val, it.data.y_val),
    "nan": _nan,
    "first_loss": lambda it: it.history.losses[0],
    "final_loss": lambda it: it.history.losses[-1],
    "loss_ratio": lambda it: it.history.losses[-1] / it.history.losses[0],
    "epoch_acc_osc": _swings,
    "loss_noise": _loss_noise,
    "eval_nondet": _restless,
    "bn_unchanged": _still_norms,
    "leak_share": _leak,
    "weight_change": _change,
    "unchanged_share": _unchanged,
    "update_ratio_median": lambda it: median(it.history.updates) if it.history.updates else 0.0,
    "first_layer_grad": _first_gradient,
    "last_layer_grad": _last_gradient,
    "grad_ratio": _gradient_ratio,
    "grad_zero_frac": _zero_gradients,
    "dead_relu_frac": _dead_relus,
    "majority_share": _majority,
    "output_spread": _output_spread,
    "unit_cosine": _cosine,
    "acc_gap": _gap,
    "val_rise": _val_rise,
}
