"""Evaluations with a single label, as of the last rows of sorted ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.trainings import digits
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.single_label import SingleLabel
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

Parts = list[tuple[Tensor, Tensor]]


def trained(
    folder: Path,
    train: tuple[Tensor, Tensor],
    evaluations: list[Parts],
    *,
    outputs: int = 10,
    ids: bool = False,
) -> list[Finding]:
    """Train for 40 steps between two evaluations; return the findings of the rule.

    Args:
        folder: receives the run.
        train: training rows and their labels.
        evaluations: batches of each evaluation.
        outputs: of the model; 1 for a binary cross-entropy.
        ids: the rows are numbers of two things each.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first = nn.Sequential(nn.Embedding(100, 8), nn.Flatten()) if ids else nn.Linear(64, 16)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(16, outputs))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        if outputs > 1:
            return functional.cross_entropy(model(x), y)
        return functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())

    rules = [SingleLabel()]
    with Hook(folder / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for batches in evaluations:
            model.train()
            for _ in range(40):
                rows = torch.randint(len(train[0]), (32,))
                optimizer.zero_grad()
                loss(train[0][rows], train[1][rows]).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for x, y in batches:
                    loss(x, y)
    return judge(open_run(folder / "run"), rules)


def in_batches(x: Tensor, y: Tensor) -> Parts:
    return list(zip(x.split(32), y.split(32), strict=True))


def held_out(sort: bool, binary: bool) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return digits, their last 100 rows held out."""
    data = digits()
    x, y = data.x, data.y
    if sort:
        order = torch.argsort(y, stable=True)
        x, y = x[order], y[order]
    y = (y >= 5).long() if binary else y
    return (x[:-100], y[:-100]), (x[-100:], y[-100:])


@pytest.mark.parametrize("outputs", [1, 2, 10])
@pytest.mark.parametrize(("evaluations", "step"), [(4, 120), (1, 40)])
def test_the_last_rows_of_sorted_ones_are_named(
    outputs: int, evaluations: int, step: int, tmp_path: Path
) -> None:
    train, held = held_out(sort=True, binary=outputs <= 2)
    (finding,) = trained(tmp_path, train, [in_batches(*held)] * evaluations, outputs=outputs)
    assert (finding.fault, finding.severity) == ("single_label", "warning")
    assert (finding.step, finding.mode) == (step, "eval")
    assert f"are equal ({1 if outputs <= 2 else 9})" in finding.seen


def test_evaluations_with_other_labels_in_later_batches_are_ignored(tmp_path: Path) -> None:
    train, (x, y) = held_out(sort=False, binary=True)
    order = torch.argsort(y, stable=True)
    assert trained(tmp_path, train, [in_batches(x[order], y[order])] * 4, outputs=2) == []


def test_classes_that_are_evaluated_one_by_one_are_ignored(tmp_path: Path) -> None:
    train, (x, y) = held_out(sort=False, binary=False)
    each = [in_batches(x[y == label], y[y == label]) for label in (3, 5, 3, 3, 3)]
    assert trained(tmp_path, train, each) == []
    together = [batch for batches in each[:2] for batch in batches]
    assert trained(tmp_path / "together", train, [together] * 4) == []


def test_labels_of_another_form_than_those_of_the_training_are_ignored(tmp_path: Path) -> None:
    """Nothing tells how often the label of the evaluations is trained."""
    (x, y), held = held_out(sort=True, binary=False)
    soft = functional.one_hot(y, 10).float() * 0.9 + 0.01
    assert trained(tmp_path, (x, soft), [in_batches(*held)] * 4) == []


def test_a_few_equal_labels_are_chance(tmp_path: Path) -> None:
    train, (x, y) = held_out(sort=False, binary=True)
    few = (x[y == 1][:8], y[y == 1][:8])
    assert trained(tmp_path, train, [[few]] * 4, outputs=2) == []


def test_pairs_that_exist_are_evaluated_without_others(tmp_path: Path) -> None:
    """A recommender: drawn pairs are its negative examples."""
    pairs = torch.randint(100, (600, 2), generator=torch.Generator().manual_seed(0))
    exist = (torch.arange(600) % 2).long()
    held = (pairs[exist == 1][:100], torch.ones(100, dtype=torch.int64))
    evaluations = [in_batches(*held)] * 4
    assert trained(tmp_path, (pairs, exist), evaluations, outputs=1, ids=True) == []
