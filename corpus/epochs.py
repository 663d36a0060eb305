"""Trainings in epochs of shuffled batches, as tutorials write them, and the faults of their loops.

Shape legend: N rows, B rows of a batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.loop import report_metrics

__all__ = ["Plan", "fit", "learning_rate", "optimizer_of", "plan", "trained"]

_Optimizer = torch.optim.Optimizer


@dataclass(frozen=True)
class Plan:
    """How long a training is.

    Attributes:
        count: training rows.
        size: rows of a batch.
        epochs: number of epochs; what is left of the last batch of each is not used.
    """

    count: int
    size: int
    epochs: int

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return self.count // self.size

    @property
    def steps(self) -> int:
        """Batches of all epochs."""
        return self.epochs * self.batches


def plan(draw: Draw, count: int, sizes: Sequence[int], epochs: tuple[int, int]) -> Plan:
    """Draw the length of a training, and announce its steps."""
    size, number = draw.choice(sizes), draw.whole(*epochs)
    if draw.has("batch_too_large"):
        size = count
    made = Plan(count, size, number)
    draw.epoch = made.batches
    draw.watch.expect(made.steps)
    return made


def learning_rate(draw: Draw, low: float, high: float) -> float:
    """Return a learning rate between two bounds, if it has no fault."""
    wrong = {"lr_too_low": draw.extent(1e-5, 1e-4), "lr_too_high": draw.extent(300, 3000)}
    return draw.between(low, high) * draw.by_fault(wrong, 1.0)


def trained(draw: Draw, model: nn.Module, head: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an optimizer gets, those of the head alone with some faults."""
    if draw.has("wrong_parameters"):
        # The model was made again after its optimizer.
        return list(copy.deepcopy(model).parameters())
    if draw.has("not_in_optimizer"):
        return list(head.parameters())
    if draw.has("frozen_layers"):
        # As if the others had been trained before.
        model.requires_grad_(requires_grad=False)
        head.requires_grad_(requires_grad=True)
    return [one for one in model.parameters() if one.requires_grad]


def optimizer_of(
    draw: Draw, kind: str, weights: Sequence[nn.Parameter], rate: float, decay: float = 0.0
) -> _Optimizer:
    """Return SGD with momentum, Adam or AdamW, with the drawn fault of their settings.

    Args:
        draw: choices of the training.
        kind: "sgd", "adam" or "adamw".
        weights: what it updates.
        rate: learning rate.
        decay: weight decay.
    """
    if draw.has("weight_decay_too_high"):
        # Adam scales the decay with the gradient, the others multiply it by the rate.
        decay = 10.0 if kind == "adam" else draw.extent(0.1, 0.3) / rate
    if kind == "sgd":
        momentum = draw.by_fault({"momentum_too_high": 0.9995}, 0.9)
        return torch.optim.SGD(weights, rate, momentum=momentum, weight_decay=decay)
    made: type[torch.optim.Adam] = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    betas = draw.by_fault({"adam_betas": (0.999, 0.5)}, (0.9, 0.999))
    epsilon = draw.by_fault({"adam_epsilon": draw.extent(1e2, 1e4)}, 1e-8)
    return made(weights, rate, betas=betas, eps=epsilon, weight_decay=decay)


def fit(
    draw: Draw,
    model: nn.Module,
    optimizer: _Optimizer,
    length: Plan,
    compute: Callable[[Tensor], Tensor],
    *,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    every: int = 2,
    clip: float = 0.0,
    per_batch: torch.optim.lr_scheduler.LRScheduler | None = None,
    per_epoch: torch.optim.lr_scheduler.LRScheduler | None = None,
    labels: Tensor | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """Train to the end.

    Args:
        draw: choices of the training.
        model: model to train.
        optimizer: its optimizer.
        length: how long to train.
        compute: return the loss of the rows int64 [B].
        evaluate: return metrics by name; None if the script does not evaluate.
        every: number of epochs between evaluations.
        clip: largest norm of the gradients; 0 for any.
        per_batch: schedule whose unit is a batch.
        per_epoch: schedule whose unit is an epoch.
        labels: class numbers [N], by which rows are sorted if nothing shuffles them.
        after: called after each step.
    """
    draw.watch.begin(model, optimizer)
    clip = draw.by_fault({"clip_too_small": draw.extent(1e-6, 1e-5)}, clip)
    for epoch in range(length.epochs):
        model.train(not draw.has("train_eval_mode"))
        for rows in _order(draw, length, labels).split(length.size):
            _learn(draw, model, optimizer, partial(compute, rows), clip)
            if after:
                after()
            if per_batch:
                per_batch.step()
            elif per_epoch and draw.has("scheduler_per_batch"):
                per_epoch.step()
        if per_epoch and not draw.has("scheduler_per_batch"):
            per_epoch.step()
        if evaluate and epoch % every == every - 1:
            report_metrics(draw, model, evaluate)


def _learn(
    draw: Draw,
    model: nn.Module,
    optimizer: _Optimizer,
    compute: Callable[[], Tensor],
    clip: float,
) -> None:
    """Take a step."""
    if not draw.has("missing_zero_grad"):
        optimizer.zero_grad()
    loss = compute()
    (-loss if draw.has("wrong_sign") else loss).backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    if not draw.has("missing_step"):
        optimizer.step()


def _order(draw: Draw, length: Plan, labels: Tensor | None) -> Tensor:
    """Return the rows of an epoch."""
    if draw.has("same_batch"):
        # `next(iter(loader))` of a loader that does not shuffle.
        rows = torch.arange(min(length.size, 8)).repeat(1 + length.size // 8)
        return rows[: length.size].repeat(length.batches)
    if draw.has("not_shuffled"):
        assert labels is not None, "a family with this fault has labels to sort by"
        return labels.argsort(stable=True)[: length.batches * length.size]
    return torch.randperm(length.count)[: length.batches * length.size]
