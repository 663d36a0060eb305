"""Helpers of the healthy trainings: a watched run, a training loop, and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tests.rules.healthy_zoo.data import Split, batches
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import RULES

__all__ = ["Loop", "Score", "accuracy", "r2", "seeded", "watched"]

# Quality of outputs, given targets.
Score = Callable[[Tensor, Tensor], float]


def seeded(seed: int) -> None:
    """Seed the random generators; use one thread, so that sums are reproducible."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)


@contextmanager
def watched(store: Path, *, steps: int | None = None, **parameters: float) -> Iterator[Hook]:
    """Open a hook with the needs of the default rules, and assert that it had no problems.

    Args:
        store: run directory.
        steps: recorded number of steps; None: unknown.
        parameters: recorded hyperparameters.
    """
    collections = capture_for(kind() for kind in RULES.values()).collections
    with Hook(store, collections=collections, parameters=parameters, total_steps=steps) as hook:
        yield hook
    assert not [problem for problem in hook.problems if "failed" in problem]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of rows whose largest output is the target's."""
    return (outputs.argmax(1) == targets).float().mean().item()


def r2(outputs: Tensor, targets: Tensor) -> float:
    """Return the coefficient of determination of all targets together."""
    residual = ((outputs - targets) ** 2).sum()
    return 1 - (residual / ((targets - targets.mean(0)) ** 2).sum()).item()


@dataclass
class Loop:
    """An ordinary supervised training.

    Attributes:
        split: the data.
        loss: function of outputs and targets.
        steps: optimizer steps.
        batch: rows per step.
        evaluate_every: steps from one evaluation to the next; 0: none.
        metric: name and function of a metric of the evaluations; None: none.
        schedule: schedule of the learning rate, stepped at each step.
    """

    split: Split
    loss: nn.Module
    steps: int = 600
    batch: int = 64
    evaluate_every: int = 50
    metric: tuple[str, Score] | None = ("accuracy", accuracy)
    schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None

    def run(
        self, store: Path, seed: int, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> nn.Module:
        """Train a model, watched; return it in evaluation mode."""
        schedule = self.schedule(optimizer) if self.schedule else None
        rows = batches(len(self.split.x), self.batch, seed)
        lr = float(optimizer.param_groups[0]["lr"])
        with watched(store, steps=self.steps, lr=lr, batch=self.batch) as hook:
            hook.watch(model, loss=self.loss, optimizer=optimizer)
            for step in range(self.steps):
                if self.evaluate_every and step % self.evaluate_every == 0:
                    self._evaluate(hook, model)
                chosen = next(rows)
                optimizer.zero_grad()
                self.loss(model(self.split.x[chosen]), self.split.y[chosen]).backward()
                optimizer.step()
                if schedule:
                    schedule.step()
        return model.eval()

    def _evaluate(self, hook: Hook, model: nn.Module) -> None:
        """Evaluate on the held-out rows."""
        model.eval()
        with torch.no_grad():
            outputs = model(self.split.x_held)
            self.loss(outputs, self.split.y_held)
            if self.metric:
                name, score = self.metric
                hook.metric(name, score(outputs, self.split.y_held))
        model.train()
