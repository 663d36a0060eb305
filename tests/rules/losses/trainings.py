"""Small torch trainings for the rules about losses and outputs, correct and faulty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.rules.trainings import batches, diabetes, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding

__all__ = ["Case", "digits_case", "judged", "regression_case"]


@dataclass
class Case:
    """A training to judge.

    Attributes:
        x: rows.
        y: labels in the form that the loss takes.
        model: model to train.
        loss: loss of outputs and labels, a module or a plain function.
        lr: learning rate of Adam, or of SGD if `sgd`.
        sgd: whether to use plain gradient descent.
        steps: optimizer steps.
        batch: rows per step.
        evaluate: steps between evaluations of the first rows; 0 for none.
    """

    x: Tensor
    y: Tensor
    model: nn.Module
    loss: nn.Module | Callable[[Tensor, Tensor], Tensor]
    lr: float = 3e-3
    sgd: bool = False
    steps: int = 300
    batch: int = 32
    evaluate: int = 0


def digits_case(model: nn.Module, loss: nn.Module | None = None, **options: object) -> Case:
    """Return a training on digits.

    The model is seeded before its creation elsewhere.
    """
    data = digits()
    case = Case(data.x, data.y, model, loss or nn.CrossEntropyLoss())
    for name, value in options.items():
        setattr(case, name, value)
    return case


def regression_case(model: nn.Module, **options: object) -> Case:
    """Return a training on diabetes rows, with targets of mean 0 and variance 1."""
    data = diabetes()
    y = (data.y - data.y.mean()) / data.y.std()
    case = Case(data.x, y, model, nn.MSELoss())
    for name, value in options.items():
        setattr(case, name, value)
    return case


def judged(case: Case, directory: Path, *rules: Rule) -> list[Finding]:
    """Train a case and return the findings."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for module in case.model.modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    kind = torch.optim.SGD if case.sgd else torch.optim.Adam
    optimizer = kind(case.model.parameters(), lr=case.lr)
    hook = Hook(
        directory,
        collections=capture_for(rules).collections,
        parameters={"lr": case.lr},
        total_steps=case.steps,
    )
    with hook:
        if isinstance(case.loss, nn.Module):
            hook.watch(case.model, loss=case.loss, optimizer=optimizer)
        rows = batches(len(case.x), case.batch)
        for step in range(case.steps):
            if case.evaluate and step % case.evaluate == 0:
                with hook.mode("eval"), torch.no_grad():
                    case.loss(case.model(case.x[:200]), case.y[:200])
            _step(case, hook, optimizer, next(rows))
    return judge(open_run(directory), rules)


def _step(case: Case, hook: Hook, optimizer: torch.optim.Optimizer, chosen: Tensor) -> None:
    optimizer.zero_grad()
    outputs = case.model(case.x[chosen])
    loss = case.loss(outputs, case.y[chosen])
    loss.backward()
    optimizer.step()
    if not isinstance(case.loss, nn.Module):
        hook.step(
            inputs=case.x[chosen].numpy(),
            labels=case.y[chosen].numpy(),
            outputs=outputs.detach().numpy(),
            loss=float(loss.detach()),
        )
