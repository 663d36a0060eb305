"""Sources that a person changes while a training reads them: each epoch has those of its start."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.data import written
from vinedresser.data import Batch, Dataset, TorchLoader, tf_dataset
from vinedresser.errors import ConfigError

SETTINGS: dict[str, Any] = {"batch_size": 4, "seed": 3, "window_bytes": 2000, "chunk_bytes": 300}


class Lists:
    """Files, and a manifest that names some of them.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.files = written.write_files(folder / "data", [21, 9, 30, 14])
        self.names = sorted(path.name for path in (folder / "data").iterdir())
        self.manifest = folder / "train.manifest"
        self._prefix = f"{folder / 'data'}/"

    def name(self, *numbers: int) -> None:
        names = [self.names[number] for number in numbers]
        self.manifest.write_text(json.dumps([{"prefix": self._prefix}, *names]))

    def expected(self, epoch: int, *numbers: int) -> list[bytes]:
        """Return the records of an epoch of files that never change."""
        dataset = Dataset([self._prefix + self.names[number] for number in numbers], **SETTINGS)
        epochs = [written.values(dataset) for _ in range(epoch + 1)]
        return epochs[-1]


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    made = Lists(tmp_path)
    made.name(0, 1)
    return made


def saved(dataset: Any) -> Any:
    return json.loads(json.dumps(dataset.state_dict()))


def resumed(lists: Lists, state: Any) -> Dataset:
    dataset = Dataset(lists.manifest, refresh=True, **SETTINGS)
    dataset.load_state_dict(state)
    return dataset


def test_a_change_is_felt_by_the_next_epoch_and_said_once(
    lists: Lists, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Dataset(lists.manifest, refresh=True, **SETTINGS)
    found: list[Batch] = []
    for batch in dataset:
        found.append(batch)
        if len(found) == 2:
            lists.name(1, 2, 3)
    assert written.values(found) == lists.expected(0, 0, 1)
    assert not caplog.records
    for epoch in (1, 2):
        assert written.values(dataset) == lists.expected(epoch, 1, 2, 3)
    (said,) = caplog.messages
    assert all(lists.names[one] in said for one in (0, 2, 3))
    assert lists.names[1] not in said


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_an_epoch_is_resumed_with_the_objects_that_it_began_with(lists: Lists, steps: int) -> None:
    dataset = Dataset(lists.manifest, refresh=True, **SETTINGS)
    lists.name(0, 2)
    list(dataset)
    lists.name(1, 3)
    batches = iter(dataset)
    list(islice(batches, steps))
    state = saved(dataset)
    expected = written.values(batches)
    # The epoch under way needs files that the list has lost, at one kill and at the next.
    lists.name(2)
    again = resumed(lists, state)
    assert again.state_dict() == state
    next(iter(again))
    assert written.values(resumed(lists, saved(again))) == expected[SETTINGS["batch_size"] :]
    again = resumed(lists, state)
    assert written.values(again) == expected
    assert written.values(again) == lists.expected(2, 2)


def test_a_position_between_epochs_begins_the_next_one_anew(lists: Lists) -> None:
    dataset = Dataset(lists.manifest, refresh=True, **SETTINGS)
    list(dataset)
    state = saved(dataset)
    lists.name(2, 3)
    assert written.values(resumed(lists, state)) == lists.expected(1, 2, 3)
    assert written.values(dataset) == lists.expected(1, 2, 3)


@pytest.mark.parametrize("broken", ["[{", '["a"]', "missing", "empty", "small"])
def test_a_list_that_cannot_be_read_leaves_that_of_the_epoch_before(
    lists: Lists, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Dataset(lists.manifest, refresh=True, drop_last=True, **SETTINGS)
    before = list(dataset)
    if broken == "missing":
        lists.manifest.write_text(json.dumps([{"prefix": "/nowhere/"}, "a.tfrecord"]))
    elif broken == "empty":
        lists.manifest.unlink()
    elif broken == "small":
        folder = lists.manifest.parent / "small"
        written.write_files(folder, [3])
        lists.manifest.write_text(
            json.dumps([{"prefix": f"{folder}/"}, *(path.name for path in folder.iterdir())])
        )
    else:
        lists.manifest.write_text(broken)
    assert len(list(dataset)) == len(before)
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    lists.name(2)
    assert {origin.uri for batch in dataset for origin in batch.origins} == {
        str(lists.manifest.parent / "data" / lists.names[2])
    }


def test_a_folder_may_be_filled_meanwhile(tmp_path: Path) -> None:
    files = written.write_files(tmp_path / "data", [5, 5])
    dataset = Dataset(tmp_path / "data", refresh=True, batch_size=5)
    assert written.values(dataset) == [*files[0], *files[1]]
    files = written.write_files(tmp_path / "data", [5, 5, 4])
    assert written.values(dataset) == [*files[0], *files[1], *files[2]]


def test_all_ranks_have_the_objects_of_rank_0(lists: Lists) -> None:
    said: list[dict[str, Any]] = []

    def from_rank_0(found: dict[str, Any]) -> dict[str, Any]:
        said.append(json.loads(json.dumps(found)))
        return said[-1]

    def to_rank_1(_: dict[str, Any]) -> dict[str, Any]:
        return said[-1]

    ranks = [
        Dataset(lists.manifest, refresh=one, rank=rank, ranks=2, **SETTINGS)
        for rank, one in enumerate((from_rank_0, to_rank_1))
    ]

    def epoch() -> list[bytes]:
        first, second = (iter(rank) for rank in ranks)
        begun = next(first)
        # Rank 1 begins later: it would find another list.
        lists.name(3)
        shares = zip([begun, *first], second, strict=True)
        return written.values(batch for both in shares for batch in both)

    assert epoch()[:30] == lists.expected(0, 0, 1)
    lists.name(1, 2)
    assert epoch()[:39] == lists.expected(1, 1, 2)
    assert epoch()[:14] == lists.expected(2, 3)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_workers_of_torch_have_the_objects_of_their_process(lists: Lists, workers: int) -> None:
    loader = TorchLoader(
        Dataset(lists.manifest, refresh=True, **SETTINGS), num_workers=workers, collate=list
    )
    assert written.values(loader) == lists.expected(0, 0, 1)
    lists.name(2, 1)
    batches = iter(loader)
    begun = [next(batches), next(batches)]
    lists.name(3)
    state = saved(loader)
    rest = written.values(batches)
    assert [*written.values(begun), *rest] == lists.expected(1, 2, 1)
    assert written.values(resumed(lists, state)) == rest


def test_tensorflow_has_epochs_of_any_length(lists: Lists) -> None:
    batches = tf_dataset(Dataset(lists.manifest, refresh=True, **SETTINGS))

    def strings(found: Iterable[Any]) -> list[bytes]:
        return [one for batch in found for one in batch.numpy().tolist()]

    for epoch, numbers in enumerate([(0, 1), (0, 1, 2, 3), (3,)]):
        lists.name(*numbers)
        # The first list is the one that was found when the data set was made.
        assert strings(batches) == lists.expected(epoch, *numbers)


def test_what_cannot_be_the_same_everywhere_is_refused(lists: Lists) -> None:
    with pytest.raises(ConfigError, match="2 ranks"):
        Dataset(lists.manifest, refresh=True, ranks=2, **SETTINGS)
    dataset = Dataset(lists.manifest, refresh=True, **SETTINGS)
    with pytest.raises(ConfigError, match="persistent_workers"):
        TorchLoader(dataset, num_workers=1, persistent_workers=True)
    next(iter(dataset))
    state = saved(dataset)
    lists.name(2)
    with pytest.raises(ConfigError, match="must be a list"):
        resumed(lists, {**state, "objects": "a"})
    path = lists.manifest.parent / "data" / lists.names[0]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ConfigError, match="replaced"):
        resumed(lists, state)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=lists.names[0]):
        resumed(lists, state)
