"""Small trainings in torch for the rules about data: digits, and what can be wrong with them."""

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

__all__ = ["found_in", "network", "relabelled", "shuffled", "sorted_batches"]


def network(wide: int = 64, out: int = 10, inner: int = 32) -> Callable[[], nn.Module]:
    """Return what makes a small network."""
    return lambda: nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))


def relabelled(change: Callable[[Tensor], Tensor], *, evaluated: bool = True) -> Data:
    """Return digits with other labels, in training only unless they are evaluated by them too."""
    data = digits()
    return replace(data, y=change(data.y), y_eval=change(data.y_eval) if evaluated else data.y_eval)


def shuffled(labels: Tensor, share: float = 1.0) -> Tensor:
    """Return labels of which the first rows, a share of them, have those of others."""
    count = round(share * len(labels))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return torch.cat([labels[:count][order], labels[count:]])


def sorted_batches(labels: Tensor, size: int) -> Iterator[Tensor]:
    """Yield row numbers of batches in the order of the labels, again and again."""
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
    """Train, and return what rules find.

    Args:
        directory: to leave the run in.
        rules: to judge by.
        data: rows.
        model: makes it.
        loss: None: cross-entropy.
        optimizer: None: Adam, 3e-3.
        steps: of the optimizer, which the run says it will take.
        batch: rows of a step.
        every: evaluate every so many steps; 0: never.
        order: row numbers of each batch; None: shuffled.
        evaluations: by their number, what is evaluated; None: the evaluation rows.
        prepare: what is done to the inputs of a batch.
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
    assert not [one for one in findings if "the rule itself failed" in one.seen]
    return [one for one in findings if one.statistic]
