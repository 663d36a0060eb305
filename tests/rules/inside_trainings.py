"""Small trainings for the rules about weights, gradients, activations and other tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from tests.rules.trainings import Data, batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run

__all__ = ["captured", "found", "stack"]

Init = Callable[[torch.Tensor], object]


def stack(
    widths: Iterable[int],
    activation: Callable[[], nn.Module],
    init: Init = nn.init.xavier_normal_,
    bias: float = 0.0,
) -> nn.Sequential:
    """Return a multilayer perceptron without an activation after the last layer."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        linear = nn.Linear(wide, narrow)
        init(linear.weight)
        nn.init.constant_(linear.bias, bias)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def captured(
    directory: Path,
    rules: Iterable[Rule],
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    *,
    data: Data | None = None,
    steps: int = 300,
    total: int | None = 300,
    loss: nn.Module | None = None,
    seed: int = 0,
    before_step: Callable[[nn.Module, int], None] = lambda model, step: None,
) -> Run:
    """Train on digits with capture for some rules; return the run.

    Args:
        directory: directory of the run.
        rules: rules whose needs are captured.
        model: creates the model.
        optimizer: creates the optimizer.
        data: data; default: digits.
        steps: optimizer steps.
        total: expected steps of the run.
        loss: loss; default: cross-entropy.
        seed: seed of the weights.
        before_step: called before each optimizer step.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    data, loss, net = data or digits(), loss or nn.CrossEntropyLoss(), model()
    descent = optimizer(net)
    lr = float(descent.param_groups[0]["lr"])
    with Hook(
        directory,
        collections=capture_for(rules).collections,
        parameters={"lr": lr},
        total_steps=total,
    ) as hook:
        hook.watch(net, loss=loss, optimizer=descent)
        rows = batches(len(data.x), 64)
        for step in range(steps):
            chosen = next(rows)
            descent.zero_grad()
            loss(net(data.x[chosen]), data.y[chosen]).backward()
            before_step(net, step)
            descent.step()
    return open_run(directory)


def found(run: Run, *rules: Rule) -> list[Finding]:
    """Return the findings of rules in a run, without those about the rules themselves."""
    findings = judge(run, rules)
    assert not [finding for finding in findings if "the rule itself failed" in finding.seen]
    return [finding for finding in findings if finding.statistic]
