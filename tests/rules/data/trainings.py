"""Small torch trainings for the rules about data: digits with various faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.rules.trainings import Data, adam, batches, digits, evaluate
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding

__all__ = ["found_in", "network", "relabelled", "shuffled", "sorted_batches", "with_inputs"]


def network(wide: int = 64, out: int = 10, inner: int = 32) -> Callable[[], nn.Module]:
    """Return a function that creates a small network."""
    return lambda: nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))


def with_inputs(change: Callable[[Tensor], Tensor], data: Data | None = None) -> Data:
    """Return digits with modified inputs."""
    data = data or digits()
    return replace(data, x=change(data.x), x_eval=change(data.x_eval))


def relabelled(change: Callable[[Tensor], Tensor], *, evaluated: bool = True) -> Data:
    """Return digits with modified labels, in training only unless ``evaluated``."""
    data = digits()
    return replace(data, y=change(data.y), y_eval=change(data.y_eval) if evaluated else data.y_eval)


def shuffled(labels: Tensor, share: float = 1.0) -> Tensor:
    """Return labels whose first rows, by share, are shuffled."""
    count = round(share * len(labels))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return torch.cat([labels[:count][order], labels[count:]])


def sorted_batches(labels: Tensor, size: int) -> Iterator[Tensor]:
    """Yield row numbers of batches sorted by label, endlessly."""
    order = labels.argsort(stable=True)
    while True:
        yield from torch.split(order, size)


def found_in(
    directory: Path,
    rules: Iterable[Rule],
    data: Data,
    model: Callable[[], nn.Module],
    *,
    loss: nn.Module | None = None,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    steps: int = 300,
    batch: int = 32,
    every: int = 0,
    order: Iterator[Tensor] | None = None,
    evaluations: Callable[[int], Data] | None = None,
    prepare: Callable[[Tensor], Tensor] = lambda x: x,
) -> list[Finding]:
    """Train, and return the findings of some rules.

    Args:
        directory: parent directory of the run.
        rules: rules to judge by.
        data: rows.
        model: creates the model.
        loss: loss; default: cross-entropy.
        optimizer: creates the optimizer; default: Adam, 3e-3.
        steps: optimizer steps, also the expected steps of the run.
        batch: rows per step.
        every: steps between evaluations; 0 for none.
        order: row numbers of each batch; default: shuffled.
        evaluations: evaluated data by number of the evaluation; default: the evaluation rows.
        prepare: transformation of the inputs of a batch.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rules = list(rules)
    net, loss = model(), loss or nn.CrossEntropyLoss()
    descent = (optimizer or adam(3e-3))(net)
    rows = order or batches(len(data.x), batch)
    with Hook(
        directory / "run", collections=capture_for(rules).collections, total_steps=steps
    ) as hook:
        hook.watch(net, loss=loss, optimizer=descent)
        for step in range(steps):
            if every and step % every == 0:
                evaluate(hook, net, loss, evaluations(step // every) if evaluations else data)
            chosen = next(rows)
            descent.zero_grad()
            loss(net(prepare(data.x[chosen])), data.y[chosen]).backward()
            descent.step()
    findings = judge(open_run(directory / "run"), rules)
    assert not [finding for finding in findings if "the rule itself failed" in finding.seen]
    return [finding for finding in findings if finding.statistic]
