"""Captured batches of real trainings carry the origins of their records, and never wrong ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.data.origins.numbered import BAD, CAPTURED, SIZE, certain, write
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.data import Dataset, TorchLoader
from vinedresser.explain.reports.mispredictions import mispredictions, write_mispredictions
from vinedresser.replay.origins import with_origins
from vinedresser.replay.stepping import bisect, replay
from vinedresser.rules.signals.origins import batch_origins
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.store.reading.step import Step

Pair = tuple[torch.Tensor, torch.Tensor]


def decode(value: Any) -> tuple[torch.Tensor, int]:
    return torch.tensor([np.nan if one is None else one for one in value["x"]]).float(), value["y"]


def open_data(place: Path, **options: Any) -> Dataset:
    arguments: dict[str, Any] = {"batch_size": SIZE, "decode": decode}
    return Dataset(place, **(arguments | options))


def pairs(dataset: Dataset) -> Iterator[Pair]:
    return (batch.values for batch in TorchLoader(dataset))


def network() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Build the model, its loss and its optimizer; also for replays."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)


class Training:
    """A training, watched if it has a place for its run."""

    def __init__(self, run: Path | None, **options: Any) -> None:
        self.model, self.loss, self.optimizer = network()
        self.run = run
        self.hook = None
        if run is not None:
            self.hook = Hook(run, collections=CAPTURED, **options)
            self.hook.watch(self.model, loss=self.loss, optimizer=self.optimizer)

    def train(self, batches: Iterable[Pair], *, accumulated: int = 1) -> None:
        for number, (inputs, labels) in enumerate(batches, 1):
            self.loss(self.model(inputs), labels).backward()
            if number % accumulated == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def evaluate(self, batches: Iterable[Pair]) -> None:
        self.model.eval()
        with torch.no_grad():
            for inputs, labels in batches:
                self.loss(self.model(inputs), labels)
        self.model.train()

    def steps(self) -> list[Step]:
        assert self.hook is not None
        assert self.run is not None
        self.hook.close()
        return list(open_run(self.run).follow())


def test_rows_have_the_origins_of_their_records(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")

    def train(training: Training) -> list[torch.Tensor]:
        seen, held_out = open_data(folder, seed=1), open_data(folder / "2.jsonl", batch_size=5)
        for _ in range(2):
            training.train(pairs(seen))
            training.evaluate(pairs(held_out))
        training.train(pairs(seen), accumulated=2)
        training.evaluate(pairs(held_out))
        return list(training.model.parameters())

    watched = Training(tmp_path / "run")
    found = train(watched)
    # Bit by bit what it would be without a hook.
    assert all(map(torch.equal, found, train(Training(None))))
    steps = watched.steps()
    modes = [step.mode for step in steps]
    assert (modes.count("train"), modes.count("eval")) == (8 + 8 + 4, 3)
    assert [certain(step, "Sequential") for step in steps] == [True] * len(steps)


def read_ahead(batches: Iterable[Pair]) -> Iterator[Pair]:
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    if waiting is not None:
        yield waiting


def skip_one(batches: Iterable[Pair]) -> Iterator[Pair]:
    return (batch for number, batch in enumerate(batches) if number != 3)


def first_rows(batches: Iterable[Pair]) -> Iterator[Pair]:
    return ((inputs[:9], labels[:9]) for inputs, labels in batches)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # What a loop does with its batches, and what is known of each step.
        (read_ahead, [None] * 8),
        (skip_one, [True] * 3 + [None] * 4),
        (first_rows, [*[False] * 7, True]),
    ],
)
def test_what_a_loop_changes_is_not_claimed(
    tmp_path: Path,
    changed: Callable[[Iterable[Pair]], Iterator[Pair]],
    expected: list[bool | None],
) -> None:
    folder = write(tmp_path / "data")
    training = Training(tmp_path / "run")
    dataset = open_data(folder, seed=1)
    training.train(changed(pairs(dataset)))
    training.train(pairs(dataset))
    assert [certain(step, "Sequential") for step in training.steps()] == [*expected, *[True] * 8]


def test_other_data_has_no_origins(tmp_path: Path) -> None:
    """Data in memory, of another loader, and of a batch that a script has looked at before."""
    folder = write(tmp_path / "data")
    training = Training(tmp_path / "run")
    inputs, labels = torch.randn(SIZE, 2), torch.randint(2, (SIZE,))
    other = DataLoader(TensorDataset(inputs, labels), batch_size=SIZE)
    dataset = open_data(folder)
    # Nobody knows whether its first batch is that of the step: only that another one was asked for.
    next(iter(TorchLoader(dataset)))
    training.train((first, second) for first, second in other)
    training.train(itertools.islice(pairs(dataset), 2))
    training.evaluate([(inputs, labels)])
    next(iter(TorchLoader(dataset)))
    training.train(pairs(dataset))
    found = [(step.mode, certain(step, "Sequential")) for step in training.steps()]
    assert found[:4] == [("train", None), ("train", True), ("train", True), ("eval", None)]
    assert {known for _, known in found[4:]} == {True}


def test_a_bad_record_is_named_by_what_finds_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", bad=True)
    training = Training(tmp_path / "run", guard="nonfinite")
    dataset = open_data(folder, seed=1, skip_damaged=1)
    training.train(pairs(dataset))
    steps = training.steps()
    (place,) = (tmp_path / "run" / "snapshots").iterdir()
    snapshot = open_snapshot(place)
    replayed = replay(snapshot, f"{__name__}:network")
    found = with_origins(bisect(replayed), snapshot)
    assert found is not None
    (origin,) = found.origins
    assert (Path(origin.uri).name, origin.record) == (f"{BAD[0]}.jsonl", BAD[1])
    assert f"record {BAD[1]} at byte {origin.offset}" in found.words
    assert (
        json.loads(Path(origin.uri).read_bytes()[origin.offset :].splitlines()[0])["x"][0] is None
    )
    # On the page of wrong predictions, each example has its record.
    write_mispredictions(mispredictions(open_run(tmp_path / "run")), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    known = [one.origins for step in steps if (one := batch_origins(step)) is not None]
    named = [one for origins in known for one in origins if str(one) in text]
    assert len(named) == text.count(": record ") > 0
