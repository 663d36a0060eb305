"""Finding a step by interpolation: the same as looking everywhere, with few requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from pathlib import Path

import numpy as np
import pytest

from tests.store.counting_storage import CountingStorage
from vinedresser.objects import LocalStorage
from vinedresser.store.index.codec import encode_record
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_lookup import IndexLookup
from vinedresser.store.records import index_key
from vinedresser.store.segments.packing import pack
from vinedresser.store.step_record import Mode, StepRecord
from vinedresser.testing.runs import step_record

RANK = 1


def row(step: int, name: str = "x", mode: Mode = "train") -> StepRecord:
    return step_record(step, mode=mode, tensors={name: np.zeros(1, np.int8)})


def written(folder: Path, segments: Iterable[Sequence[StepRecord]]) -> CountingStorage:
    """Write the index records of segments."""
    storage = LocalStorage(folder)
    for seq, rows in enumerate(segments):
        segment = pack(rows, rank=RANK, seq=seq)
        list(segment.parts())
        storage.put(index_key(RANK, seq), [encode_record(segment.record())])
    return CountingStorage(folder)


def lookup(storage: LocalStorage, problems: Problems | None = None) -> IndexLookup:
    return IndexLookup(storage, RANK, LayoutPool(), problems or Problems())


def where(
    lookup: IndexLookup, step: int, name: str = "x", mode: Mode = "train"
) -> tuple[int, int] | None:
    """Return the number of the segment and the row of a tensor, as found."""
    found = lookup.find(name, step, mode)
    if found is None:
        return None
    segment, entry = found
    rows = segment.rows_of(entry.group)
    return segment.record.seq, int(rows[entry.place])


def everywhere(
    segments: Sequence[Sequence[StepRecord]], step: int, name: str, mode: Mode
) -> tuple[int, int] | None:
    """Return the same by looking at each row."""
    found = [
        (seq, row)
        for seq, rows in enumerate(segments)
        for row, record in enumerate(rows)
        if (record.step, record.mode) == (step, mode) and name in record.tensors
    ]
    return found[-1] if found else None


RUNS: dict[str, list[list[int]]] = {
    "one step a segment": [[step] for step in range(40)],
    "every tenth step": [[10 * step] for step in range(30)],
    "begins late": [[1000 + step] for step in range(20)],
    "several steps a segment": [[3 * seq, 3 * seq + 1, 3 * seq + 2] for seq in range(30)],
    "one segment": [[4, 5, 9]],
    "growing": [[seq**2] for seq in range(40)],
    "shrinking": [[int(1000 * seq**0.5)] for seq in range(40)],
    "a jump": [[step] for step in (*range(30), *range(100_000, 100_030))],
    "a step of several segments": [[0], [1], [2], [2], [2], [2, 2], [2, 3], [4]],
    "all of one step": [[7]] * 12,
    "none": [],
}


@pytest.mark.parametrize("run", RUNS)
def test_every_step_is_found_where_it_is(tmp_path: Path, run: str) -> None:
    segments = [[row(step) for step in steps] for steps in RUNS[run]]
    storage = written(tmp_path, segments)
    known = {step for steps in RUNS[run] for step in steps}
    asked = known | {step + 1 for step in known} | {0, 10**7}
    for step in sorted(asked):
        assert where(lookup(storage), step) == everywhere(segments, step, "x", "train")
    # The records that are known already do no harm.
    again = lookup(storage)
    for step in sorted(asked, key=lambda step: step * 7919 % 101):
        assert where(again, step) == everywhere(segments, step, "x", "train")


@pytest.mark.parametrize("place", [0, 1, 57, 88, 89])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("start", [0, 1000])
def test_even_steps_take_three_records(tmp_path: Path, place: int, rows: int, start: int) -> None:
    steps = range(start, start + 90)
    storage = written(tmp_path, [list(map(row, steps[n : n + rows])) for n in range(0, 90, rows)])
    assert where(lookup(storage), start + place) == divmod(place, rows)
    # The first one, the one that is guessed from the pace, and the one after it.
    assert storage.asked["index"] <= 3


@pytest.mark.parametrize(
    ("steps", "most"), [([10 * seq for seq in range(300)], 2), ([seq**2 for seq in range(300)], 5)]
)
def test_uneven_steps_take_few_records(tmp_path: Path, steps: list[int], most: int) -> None:
    """As many as bisection, times a small factor, also for a step that was not captured."""
    storage = written(tmp_path, [[row(step)] for step in steps])
    for seq in (0, 13, 150, 255, 298, 299):
        for step, found in ((steps[seq], (seq, 0)), (steps[seq] + 2, None)):
            storage.asked.clear()
            assert where(lookup(storage), step) == found
            assert storage.asked["index"] <= most * log2(len(steps))


def test_modes_and_names_are_distinguished(tmp_path: Path) -> None:
    segments = [
        [row(0), row(0, "y")],
        [row(1), row(1, mode="eval"), row(1)],
        [row(2, "y"), row(2, mode="eval")],
        [row(2, mode="eval"), row(3)],
    ]
    found = lookup(written(tmp_path, segments))
    modes: tuple[Mode, ...] = ("train", "eval", "predict")
    for step in range(5):
        for name in ("x", "y", "z"):
            for mode in modes:
                assert where(found, step, name, mode) == everywhere(segments, step, name, mode)


@pytest.mark.parametrize("damage", ["corrupt", "missing"])
def test_it_gives_up_at_an_unreadable_record(tmp_path: Path, damage: str) -> None:
    problems = Problems()
    storage = written(tmp_path, [[row(step)] for step in range(9)])
    path = tmp_path / index_key(RANK, 4)
    if damage == "corrupt":
        path.write_bytes(b"{}")
    else:
        path.unlink()
    found = lookup(storage, problems)
    assert where(found, 4) is None
    assert where(found, 0) == (0, 0)
    assert where(found, 8) in (None, (8, 0))
    # The reader of the whole index reports what is missing.
    assert len(problems.sentences) == (damage == "corrupt")


def test_new_records_are_found(tmp_path: Path) -> None:
    found = lookup(written(tmp_path, [[row(0)], [row(1)]]))
    assert where(found, 2) is None
    written(tmp_path, [[row(step)] for step in range(3)])
    assert where(found, 2) == (2, 0)


def test_names_of_the_first_record(tmp_path: Path) -> None:
    first = step_record(
        0,
        tensors={"full": np.zeros(1)},
        scalars={"losses/loss": 1.0},
        reductions={"statistics": {"l2": 1.0}},
    )
    found = lookup(written(tmp_path, [[first], [row(1)]]))
    names = ("full", "statistics", "losses/loss", "x")
    assert [found.begins_with(name) for name in names] == [True, True, False, False]


def test_a_run_without_a_first_record_begins_with_nothing(tmp_path: Path) -> None:
    assert not lookup(written(tmp_path / "empty", [])).begins_with("x")
    storage = written(tmp_path / "corrupt", [[row(0)], [row(1)]])
    (tmp_path / "corrupt" / index_key(RANK, 0)).write_bytes(b"")
    assert not lookup(storage).begins_with("x")
    (tmp_path / "corrupt" / index_key(RANK, 0)).unlink()
    assert not lookup(storage).begins_with("x")
