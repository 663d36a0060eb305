"""Captured batches of real trainings carry the origins of their records, and never wrong ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.data.origins.numbered import BAD, SIZE, certain, write
from tests.data.origins.trainings import Pair, Training, open_data, pairs
from vinedresser import open_run
from vinedresser.data import Dataset, TorchLoader
from vinedresser.data import write as write_records
from vinedresser.errors import ConfigError
from vinedresser.explain.reports.mispredictions import mispredictions, write_mispredictions
from vinedresser.replay.origins import with_origins
from vinedresser.replay.recorded import recorded_step
from vinedresser.replay.stepping import bisect, replay
from vinedresser.rules.signals.origins import batch_origins
from vinedresser.snapshots.reading import open_snapshot


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
    replayed = replay(snapshot, "tests.data.origins.trainings:network")
    alarm = json.loads((tmp_path / "run" / "findings" / "trainer-guard.jsonl").read_text())
    assert "; its batch: 8 records: " in alarm["seen"]
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


def test_a_step_of_bytes_is_replayed_without_them(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    rows[BAD[1]] = np.nan
    write_records((row.tobytes() for row in rows), str(tmp_path / "data"))
    training = Training(tmp_path / "run", guard="nonfinite")
    loader = TorchLoader(Dataset(tmp_path / "data", batch_size=8), num_workers=1)
    numbers = (np.frombuffer(b"".join(batch.values), np.float32) for batch in loader)
    labels = torch.zeros(8, dtype=torch.int64)
    training.train((torch.tensor(number).reshape(-1, 2), labels) for number in numbers)
    training.steps()
    (place,) = (tmp_path / "run" / "snapshots").iterdir()
    snapshot = open_snapshot(place)
    found = with_origins(bisect(replay(snapshot, "tests.data.origins.trainings:network")), snapshot)
    assert found is not None
    assert [origin.record for origin in found.origins] == [BAD[1]]
    # A script would get them from its data loader.
    with pytest.raises(ConfigError, match=r"calls\.0\.loaded\.values"):
        recorded_step(snapshot, loaded=True)
