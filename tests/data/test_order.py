"""The order of an epoch: complete, disjoint, the same for any number of workers and ranks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data import written
from tests.property_tests import examples
from vinedresser.data import Batch, Dataset
from vinedresser.errors import ConfigError


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[bytes]]]:
    """Return folders of few and many, small and large, equal and unequal files."""
    root = tmp_path_factory.mktemp("order")
    made = []
    for name, counts in {"one": [83], "few": [40, 0, 3, 17], "many": [1, 2, 3] * 6}.items():
        files = written.write_files(root / name, counts)
        made.append((root / name, [record for file in files for record in file]))
    # Files with several marks: each row group is one.
    groups = written.records(100)
    (root / "groups").mkdir()
    (root / "groups" / "a.parquet").write_bytes(written.parquet_file(groups[:60]))
    (root / "groups" / "b.parquet").write_bytes(written.parquet_file(groups[60:]))
    return [*made, (root / "groups", groups)]


def contents(batches: Iterable[Batch]) -> list[bytes]:
    """Return the records of batches, whatever the format."""
    return [
        value["content"] if isinstance(value, dict) else value for value in written.values(batches)
    ]


def in_turn(shares: list[Iterator[Batch]]) -> Iterator[Batch]:
    """Yield batches of workers, or ranks, as they take turns."""
    for batches in zip_longest(*shares):
        yield from (batch for batch in batches if batch is not None)


orders = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 12),
        "seed": st.integers(0, 3),
        "lanes": st.integers(1, 7),
        "window_bytes": st.sampled_from([0, 500, 5000]),
        "chunk_bytes": st.sampled_from([1, 300, 4000]),
    }
)


@pytest.mark.parametrize("which", range(4))
@given(order=orders, workers=st.integers(1, 5), ranks=st.integers(1, 4))
@examples(30)
def test_all_divisions_have_the_same_order(
    folders: list[tuple[Path, list[bytes]]],
    which: int,
    order: dict[str, Any],
    workers: int,
    ranks: int,
) -> None:
    folder, records = folders[which]
    alone = list(Dataset(folder, **order))
    assert Counter(contents(alone)) == Counter(records)
    assert [batch.number for batch in alone] == [*range(len(alone))]
    divided = [
        in_turn([rank.share(worker, workers) for worker in range(workers)])
        for rank in (Dataset(folder, **order, rank=rank, ranks=ranks) for rank in range(ranks))
    ]
    found = list(in_turn(divided))
    # The first batches are repeated so that all ranks have equally many.
    expected = [*alone, *alone, *alone, *alone][: -(-len(alone) // ranks) * ranks]
    assert [batch.number for batch in found] == [batch.number for batch in expected]
    assert contents(found) == contents(expected)


@given(order=orders, ranks=st.integers(1, 4))
@examples(20)
def test_batches_that_do_not_suffice_for_all_ranks_may_be_dropped(
    folders: list[tuple[Path, list[bytes]]], order: dict[str, Any], ranks: int
) -> None:
    folder, _ = folders[1]
    alone = contents(Dataset(folder, **order, drop_last=True))
    sets = [
        Dataset(folder, **order, drop_last=True, uneven="drop", rank=rank, ranks=ranks)
        for rank in range(ranks)
    ]
    shares = [list(one) for one in sets]
    assert len({len(share) for share in shares}) == 1
    found = list(in_turn([iter(share) for share in shares]))
    assert {len(batch.values) for batch in found} == {order["batch_size"]}
    assert contents(found) == alone[: len(found) * order["batch_size"]]


@given(order=orders, ranks=st.lists(st.integers(1, 4), min_size=2, max_size=4), data=st.data())
@examples(20)
def test_a_position_can_be_resumed_with_other_ranks(
    folders: list[tuple[Path, list[bytes]]],
    order: dict[str, Any],
    ranks: list[int],
    data: st.DataObject,
) -> None:
    folder, _ = folders[3]
    undisturbed = Dataset(folder, **order)
    epochs = [*chain.from_iterable(list(undisturbed) for _ in range(3))]
    state = undisturbed.state_dict() | {"epoch": 0, "batch": 0}
    found: list[Batch] = []
    for count in ranks:
        group = [Dataset(folder, **order, rank=rank, ranks=count) for rank in range(count)]
        for one in group:
            one.load_state_dict(json.loads(json.dumps(state)))
        steps = data.draw(st.integers(0, len(group[0])))
        running = [iter(one) for one in group]
        batches = [[next(one) for one in running] for _ in range(steps)]
        states = [one.state_dict() for one in group]
        assert all(one == states[0] for one in states)
        if states[0]["epoch"] == state["epoch"]:
            found += chain.from_iterable(batches)
        else:
            # Without those that were repeated at the end of the epoch.
            left = -(-undisturbed.records // order["batch_size"]) - state["batch"]
            found += [*chain.from_iterable(batches)][:left]
        state = states[0]
    assert contents(found) == contents(epochs[: len(found)])


def test_epochs_differ_and_are_the_same_each_time(tmp_path: Path) -> None:
    written.write_files(tmp_path / "data", [50, 50])

    def epochs(seed: int) -> list[list[bytes]]:
        dataset = Dataset(tmp_path / "data", batch_size=8, seed=seed)
        return [written.values(dataset) for _ in range(3)]

    first = epochs(1)
    assert first == epochs(1)
    assert len({tuple(order) for order in (*first, *epochs(2))}) == 6


def test_the_order_of_a_seed_never_changes(tmp_path: Path) -> None:
    # Positions that were saved by an earlier version depend on it.
    written.write_files(tmp_path / "data", [6, 5])
    dataset = Dataset(tmp_path / "data", batch_size=3, seed=7, lanes=2, chunk_bytes=100)
    found = [[(origin.uri[-12:-9], origin.record) for origin in batch.origins] for batch in dataset]
    assert found == [
        [("000", 5), ("000", 1), ("000", 2)],
        [("001", 0), ("001", 3), ("001", 1)],
        [("000", 4), ("000", 0), ("000", 3)],
        [("001", 4), ("001", 2)],
    ]


def test_a_shuffled_window_mixes_what_lies_far_apart(tmp_path: Path) -> None:
    written.write_files(tmp_path / "data", [1000])
    dataset = Dataset(tmp_path / "data", batch_size=100, seed=1)
    for batch in dataset:
        numbers = [origin.record for origin in batch.origins]
        # Of 100 records drawn from 1000, 10 are expected in each tenth.
        tenths = Counter(number // 100 for number in numbers)
        assert len(tenths) == 10
        assert max(tenths.values()) <= 25


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "batch_size = 0: must be at least 1"),
    ({"window_bytes": "64MB"}, "window_bytes = '64MB': must be a whole number"),
    ({"rank": "1", "ranks": 2}, "rank = '1': must be a whole number"),
    ({"seed": True}, "seed = True: must be a whole number"),
    ({"lanes": 2}, "lanes = 2: lanes are only for shuffled data; set seed, too"),
    ({"seed": -1}, "seed = -1: must not be negative"),
    ({"window_bytes": -1}, "window_bytes = -1: must not be negative"),
    ({"rank": 2, "ranks": 2}, "rank = 2: must be at least 0 and below ranks = 2"),
    ({"uneven": "cut"}, "uneven = 'cut': must be 'pad' or 'drop'"),
    ({"format": "tfrecords"}, "format = 'tfrecords': .*; did you mean tfrecord"),
    ({"columns": ["a"]}, "columns: only Parquet files have columns"),
    ({"batch_size": 11, "drop_last": True}, "10 records are less than one batch of 11"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_invalid_arguments_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    written.write_files(tmp_path / "data", [10])
    with pytest.raises(ConfigError, match=message):
        Dataset(tmp_path / "data", **{"batch_size": 2, **options})


def test_a_position_of_something_else_is_refused(tmp_path: Path) -> None:
    written.write_files(tmp_path / "data", [10])
    dataset = Dataset(tmp_path / "data", batch_size=2, seed=1)
    state = dataset.state_dict()
    other = Dataset(tmp_path / "data", batch_size=2, seed=2)
    with pytest.raises(ConfigError, match="was saved with seed = 1, and this data set has 2"):
        other.load_state_dict(state)
    written.write_files(tmp_path / "data", [10, 1])
    with pytest.raises(ConfigError, match="the position was saved with data = "):
        Dataset(tmp_path / "data", batch_size=2, seed=1).load_state_dict(state)
    with pytest.raises(ConfigError, match="not one that state_dict"):
        dataset.load_state_dict({"epoch": 1})
    for wrong in (-1, True, 1.0, "1"):
        with pytest.raises(ConfigError, match=f"the position has batch = {wrong!r}"):
            dataset.load_state_dict({**state, "batch": wrong})


def test_small_chunks_of_large_files_are_found_at_once(tmp_path: Path) -> None:
    # A file of 64 GB with holes, whose rows are as long as the steps in which chunks begin.
    path = tmp_path / "rows.npy"
    header = {"descr": "|u1", "fortran_order": False, "shape": (64, 10**9)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 64 * 10**9)
    # With a step for each byte, this would take hours.
    assert len(Dataset(path, batch_size=4, chunk_bytes=1)) == 16
