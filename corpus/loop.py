"""The loop of a training, and what its evaluation scores.

Shape legend: N rows, C classes, K targets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.optimisation import Optimisation

__all__ = [
    "MODE_FAULTS",
    "accuracy",
    "evaluation",
    "explained",
    "gained",
    "report_metrics",
    "run_loop",
]

# Faults of models whose modes differ: those with dropout or batch norm.
MODE_FAULTS = ("train_eval_mode", "evaluated_in_training")


def run_loop(
    draw: Draw,
    model: nn.Module,
    optimisation: Optimisation,
    steps: int,
    *,
    compute: Callable[[], Tensor],
    evaluate: Callable[[], Mapping[str, float]] | None = None,
) -> None:
    """Train to the end.

    Args:
        draw: choices of the training.
        model: model to train.
        optimisation: takes the steps.
        steps: number of steps.
        compute: return the loss of the next batch.
        evaluate: return metrics by name; None if the script does not evaluate.
    """
    draw.watch.begin(model, optimisation.optimizer)
    interval = max(1, min(steps // 5, draw.whole(10, 100)))
    first = draw.chance(0.3)
    for step in range(steps):
        if evaluate and step % interval == 0 and (step or first):
            report_metrics(draw, model, evaluate)
        if not draw.has("train_eval_mode"):
            model.train()
        elif step == 0:
            model.eval()
        optimisation.step(compute)
    if evaluate:
        report_metrics(draw, model, evaluate)


def report_metrics(
    draw: Draw, model: nn.Module, evaluate: Callable[[], Mapping[str, float]]
) -> None:
    """Evaluate a model, and report its metrics."""
    with draw.watch.evaluating(), evaluation(draw, model):
        for name, value in evaluate().items():
            draw.watch.metric(name, value)


@contextlib.contextmanager
def evaluation(draw: Draw, model: nn.Module) -> Iterator[None]:
    """Evaluate a model without gradients, in the mode in which the script evaluates."""
    model.train(draw.has("evaluated_in_training"))
    with torch.no_grad():
        yield


def accuracy(output: Tensor, y: Tensor) -> float:
    """Return the mean over the classes in y of the share of their rows that are right.

    Args:
        output: scores [N, C].
        y: class numbers [N].
    """
    right = (output.argmax(dim=1) == y).double()
    return float(torch.stack([right[y == one].mean() for one in y.unique()]).mean())


def gained(value: float, chance: float) -> float:
    """Return a score: 0 for the value of chance, 1 for the value 1."""
    return (value - chance) / (1 - chance)


def explained(output: Tensor, y: Tensor) -> float:
    """Return R² of outputs [N, K] over all targets [N, K]."""
    wanted = y.double()
    error = (output.double() - wanted).square().sum()
    return float(1 - error / (wanted - wanted.mean(0)).square().sum())
