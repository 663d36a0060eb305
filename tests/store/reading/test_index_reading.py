"""Reading the index of a rank: every readable segment once and in order, all others reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.store.counting_storage import CountingStorage
from vinedresser.objects import LocalStorage
from vinedresser.store.index.codec import encode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.index.manifest import SPAN, ManifestBuilder
from vinedresser.store.problems import Problems
from vinedresser.store.reading.index_reading import IndexCursor, IndexReader
from vinedresser.store.records import index_key, manifest_key
from vinedresser.store.segments.packing import pack
from vinedresser.testing.runs import step_record

RANK = 2
# Two manifests and records behind them.
COUNT = 2 * SPAN + 40


class Requests(CountingStorage):
    """A storage that also keeps the sizes of requests for several objects."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sizes: list[int] = []

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self.sizes.append(len(keys))
        return super().get_many(keys)


def record_of(seq: int) -> IndexRecord:
    """Return the record of a segment of one or two rows."""
    rows = [step_record(2 * seq + row, scalars={"losses/loss": 0.0}) for row in range(1 + seq % 2)]
    segment = pack(rows, rank=RANK, seq=seq)
    list(segment.parts())
    return segment.record()


def manifests_of(records: Sequence[IndexRecord]) -> list[bytes]:
    builder = ManifestBuilder(RANK)
    found = map(builder.add, records)
    return [content for content in found if content is not None]


RECORDS = [record_of(seq) for seq in range(COUNT)]
ENCODED = [encode_record(record) for record in RECORDS]
MANIFESTS = manifests_of(RECORDS)


def written(
    folder: Path,
    seqs: Iterable[int],
    *,
    corrupt: Iterable[int] = (),
    manifests: Iterable[int] = (),
    corrupt_manifests: Iterable[int] = (),
) -> Requests:
    """Write an index of which some records are missing or corrupt."""
    storage = LocalStorage(folder)
    for seq in seqs:
        storage.put(index_key(RANK, seq), [ENCODED[seq]])
    for seq in corrupt:
        storage.put(index_key(RANK, seq), [b"{}"])
    for number in manifests:
        storage.put(manifest_key(RANK, number), [MANIFESTS[number]])
    for number in corrupt_manifests:
        storage.put(manifest_key(RANK, number), [MANIFESTS[number][:-5]])
    return Requests(folder)


def reader(storage: LocalStorage, problems: Problems | None = None) -> IndexReader:
    return IndexReader(storage, RANK, LayoutPool(), problems or Problems())


def cursor(storage: LocalStorage, problems: Problems | None = None) -> IndexCursor:
    return IndexCursor(storage, RANK, LayoutPool(), problems or Problems())


def numbers(cursor: IndexCursor) -> list[int]:
    """Return the numbers of the segments up to now; what they contain is checked."""
    found = []
    while (segment := cursor.next()) is not None:
        assert encode_record(segment.record) == ENCODED[segment.record.seq]
        found.append(segment.record.seq)
    return found


def numbers_at_the_end(cursor: IndexCursor) -> list[int]:
    """Return the numbers of all segments of a run that has ended."""
    found = numbers(cursor)
    while cursor.skip_gap():
        found += numbers(cursor)
    return found


# IndexReader


@pytest.mark.parametrize(
    ("first", "count", "seqs"),
    [(0, 3, [0, 1, 2]), (2, 10, [2, 3]), (4, 2, []), (5, 2, [5, 6]), (6, 3, [6])],
)
def test_consecutive_records(tmp_path: Path, first: int, count: int, seqs: list[int]) -> None:
    found = reader(written(tmp_path, [0, 1, 2, 3, 5, 6])).records(first, count)
    assert [record and record.seq for record in found] == seqs


def test_a_corrupt_record_is_reported_in_its_place(tmp_path: Path) -> None:
    storage = written(tmp_path, [3, 4, 6], corrupt=[5])
    problems = Problems()
    found = reader(storage, problems).records(3, 4)
    assert [record and record.seq for record in found] == [3, 4, None, 6]
    (problem,) = problems.sentences
    assert problem.startswith(f"{tmp_path}/{index_key(RANK, 5)}: not a sealed record;")
    assert "data of this segment cannot be read" in problem


def test_consecutive_manifests(tmp_path: Path) -> None:
    storage = written(tmp_path, range(COUNT), manifests=[0, 1])
    for first, count, seqs in ((0, 1, range(SPAN)), (0, 5, range(2 * SPAN))):
        found = reader(storage).manifests(first, count)
        assert [record.seq for records in found for record in records] == list(seqs)
    (second,) = reader(storage).manifests(1, 1)
    assert [record.seq for record in second] == list(range(SPAN, 2 * SPAN))
    assert reader(storage).manifests(2, 3) == []


@pytest.mark.parametrize(("last", "whole"), [(2 * SPAN - 2, False), (2 * SPAN - 1, True)])
def test_manifests_count_once_their_last_record_exists(
    tmp_path: Path, last: int, whole: bool
) -> None:
    storage = written(tmp_path, [last], manifests=[0, 1])
    assert len(reader(storage).manifests(0, 4)) == 2 * whole


def test_a_corrupt_manifest_is_reported_and_ends_them(tmp_path: Path) -> None:
    storage = written(tmp_path, range(COUNT), manifests=[0], corrupt_manifests=[1])
    problems = Problems()
    assert len(reader(storage, problems).manifests(0, 2)) == 1
    (problem,) = problems.sentences
    assert problem.startswith(f"{tmp_path}/{manifest_key(RANK, 1)}: ")
    assert "index records are read instead" in problem


def test_the_next_record_is_found_by_listing(tmp_path: Path) -> None:
    storage = written(tmp_path, [0, 3, 4, 12])
    (tmp_path / index_key(RANK, 0)).with_name("notes.txt").write_text("not a record")
    found = [reader(storage).next_after(seq) for seq in range(-1, 13)]
    assert found == [0, 3, 3, 3, 4, *[12] * 8, None]
    assert [reader(storage).exists(seq) for seq in (0, 1, 3, 12)] == [True, False, True, True]


# IndexCursor


@pytest.mark.parametrize("manifests", [[], [0], [0, 1], [1]])
def test_all_segments_in_order(tmp_path: Path, manifests: list[int]) -> None:
    storage = written(tmp_path, range(COUNT), manifests=manifests)
    problems = Problems()
    found = cursor(storage, problems)
    assert numbers(found) == list(range(COUNT))
    assert found.records == sum(len(record.rows.steps) for record in RECORDS)
    assert not found.skip_gap()
    assert problems.sentences == []
    # As many are requested as were found in a row, and no record that a manifest has.
    assert max(storage.sizes) <= 16
    assert storage.asked["index"] <= COUNT - SPAN * len(manifests) + 16
    assert storage.asked["manifests"] <= len(manifests) + 3


def test_requests_grow_with_the_records_found_in_a_row(tmp_path: Path) -> None:
    storage = written(tmp_path, range(50))
    found = cursor(storage)
    for _ in range(31):
        assert found.next() is not None
    # After a request for the first manifest.
    assert storage.sizes == [1, 1, 1, 2, 4, 8, 16]
    storage.sizes.clear()
    assert len(numbers(found)) == 19
    # The second is not answered in full, the third not at all, and none goes beyond.
    assert storage.sizes == [16, 16, 1]


@pytest.mark.parametrize("present", [SPAN - 1, SPAN, SPAN + 1])
def test_a_poll_costs_the_same_at_every_record(tmp_path: Path, present: int) -> None:
    storage = written(tmp_path, range(present))
    found = cursor(storage)
    assert numbers(found) == list(range(present))
    # A manifest is asked for once, at its first record.
    assert found.next() is None
    storage.asked.clear()
    for _ in range(3):
        assert found.next() is None
    assert storage.asked == {"index": 3, "exists": 3}


def test_records_are_returned_as_they_are_committed(tmp_path: Path) -> None:
    storage = written(tmp_path, [])
    found = cursor(storage)
    assert found.next() is None
    for seq in range(SPAN + 3):
        written(tmp_path, [seq])
        assert numbers(found) == [seq]
        assert found.records == sum(len(record.rows.steps) for record in RECORDS[: seq + 1])


def test_a_late_manifest_is_not_needed(tmp_path: Path) -> None:
    storage = written(tmp_path, range(SPAN))
    found = cursor(storage)
    assert numbers(found) == list(range(SPAN))
    written(tmp_path, range(SPAN, COUNT), manifests=[0, 1])
    assert numbers(found) == list(range(SPAN, COUNT))


def test_a_corrupt_manifest_is_replaced_by_its_records(tmp_path: Path) -> None:
    storage = written(tmp_path, range(COUNT), manifests=[1], corrupt_manifests=[0])
    problems = Problems()
    assert numbers(cursor(storage, problems)) == list(range(COUNT))
    assert len(problems.sentences) == 1
    # The second manifest is used all the same.
    assert storage.asked["index"] <= SPAN + 40 + 16


def missing(first: int, last: int) -> str:
    """Return the beginning of the sentence about missing records."""
    begin = f"{index_key(RANK, first)}"
    return begin if first == last else f"{begin} to {index_key(RANK, last)}"


@pytest.mark.parametrize("gap", [1, 2, 5, 30])
@pytest.mark.parametrize("first", [0, 1, 17, SPAN - 1, SPAN])
def test_a_gap_is_skipped_and_reported(tmp_path: Path, first: int, gap: int) -> None:
    lost = range(first, first + gap)
    storage = written(tmp_path, [seq for seq in range(SPAN + 35) if seq not in lost])
    problems = Problems()
    found = cursor(storage, problems)
    before = numbers(found)
    # A single missing record is skipped while the run is written, since the next one exists.
    assert before == [*range(first), *(range(first + 1, SPAN + 35) if gap == 1 else ())]
    assert numbers_at_the_end(found) == ([] if gap == 1 else list(range(first + gap, SPAN + 35)))
    assert found.next() is None
    (problem,) = problems.sentences
    assert problem.startswith(f"{tmp_path}/{missing(first, first + gap - 1)}: missing")
    assert "data of these segments cannot be read" in problem


def test_a_gap_of_several_records_may_still_be_filled(tmp_path: Path) -> None:
    problems = Problems()
    found = cursor(written(tmp_path, [0, 1, 4, 5]), problems)
    assert numbers(found) == [0, 1]
    written(tmp_path, [2])
    # Now one is missing.
    assert numbers(found) == [2, 4, 5]
    assert len(problems.sentences) == 1
    assert not found.skip_gap()


def test_skipping_without_a_gap_changes_nothing(tmp_path: Path) -> None:
    problems = Problems()
    found = cursor(written(tmp_path, range(3)), problems)
    assert found.skip_gap()
    assert numbers(found) == [0, 1, 2]
    assert not found.skip_gap()
    assert problems.sentences == []


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_loses_what_is_damaged_only(tmp_path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    present = set(np.flatnonzero(chance.random(COUNT) < 0.8).tolist())
    corrupt = {seq for seq in present if chance.random() < 0.1}
    manifests = [number for number in (0, 1) if chance.random() < 0.5]
    storage = written(tmp_path, present - corrupt, corrupt=corrupt, manifests=manifests)
    used = set()
    if 0 in manifests and SPAN - 1 in present:
        used |= set(range(SPAN))
    if 1 in manifests and 2 * SPAN - 1 in present:
        used |= set(range(SPAN, 2 * SPAN))
    problems = Problems()
    found = cursor(storage, problems)
    assert numbers_at_the_end(found) == sorted((present - corrupt) | used)
    for seq in corrupt - used:
        assert any(index_key(RANK, seq) in sentence for sentence in problems.sentences)
