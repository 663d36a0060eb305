"""Reading one segment: every value, in every way, and what is reported of a damaged one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.errors import CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.store.problems import Problems
from vinedresser.store.segments.packing import pack
from vinedresser.store.segments.segment import ContiguousRows, Segment, TensorRow, row_position
from vinedresser.store.step_record import MODES, Mode, StepRecord
from vinedresser.testing.runs import host_tensor, step_record

# Mode, step, and whether "outputs/some" and "metrics/*" were captured.
ROWS: list[tuple[Mode, int, bool]] = [
    ("train", 3, True),
    ("train", 4, True),
    ("eval", 5, False),
    ("train", 5, True),
    ("train", 5, False),
    ("predict", 6, True),
    ("train", 6, True),
]


def some(row: int) -> NDArray[Any]:
    return np.array([row, -row, 7], np.int16)


def always(row: int) -> NDArray[Any]:
    return np.array([[row], [row + 0.5]], np.float32)


def records() -> list[StepRecord]:
    """A tensor of every row, one of most rows, and an alias that means one or the other."""
    found = []
    for row, (mode, step, captured) in enumerate(ROWS):
        metrics = {"metrics/a": row / 4, "metrics/b": -row} if captured else {}
        record = step_record(
            step,
            mode=mode,
            scalars={"losses/loss": row / 7, **metrics},
            reductions={"outputs/always": {"l2": row / 3, "max": row}},
        )
        whole = record.tensors["outputs/always"] = host_tensor(always(row))
        if captured:
            record.tensors["outputs/some"] = host_tensor(some(row))
        # At row 1 the alias is another tensor's.
        record.tensors["alias"] = whole if row != 1 else record.tensors["outputs/some"]
        found.append(record)
    return found


def expected(name: str, row: int) -> NDArray[Any] | None:
    """What a tensor was at a row."""
    if name == "outputs/always" or (name == "alias" and row != 1):
        return always(row)
    return some(row) if ROWS[row][2] else None


NAMES = ("outputs/always", "outputs/some", "alias")


class Requests(LocalStorage):
    """A storage that keeps the ranges that were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.ranges: list[tuple[int, int | None]] = []

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.ranges.append((start, length))
        return super().get(key, start, length)


def stored(folder: Path, records: list[StepRecord]) -> Segment:
    storage = Requests(folder)
    packed = pack(records, rank=1, seq=4)
    storage.put(packed.key, packed.parts())
    return Segment(storage, packed.record())


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return stored(tmp_path, records())


def file_of(segment: Segment, folder: Path) -> Path:
    return folder / segment.record.segment


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


# Positions


@pytest.mark.parametrize("name", [*NAMES, "none"])
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_a_tensor_of_a_row(segment: Segment, name: str, row: int) -> None:
    found = segment.locate(name, row)
    wanted = None if name == "none" else expected(name, row)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    value = segment.tensor(name, found)
    np.testing.assert_array_equal(value, wanted)
    assert value.dtype == wanted.dtype
    assert not value.flags.writeable


def test_both_tensors_of_a_group_that_some_rows_lack(tmp_path: Path) -> None:
    made = records()
    for row, record in enumerate(made):
        if ROWS[row][2]:
            record.tensors["outputs/more"] = host_tensor(-some(row))
    segment = stored(tmp_path, made)
    for row in range(len(ROWS)):
        for name, sign in (("outputs/some", 1), ("outputs/more", -1)):
            found = segment.locate(name, row)
            assert (found is not None) == ROWS[row][2]
            if found is not None:
                np.testing.assert_array_equal(segment.tensor(name, found), sign * some(row))


@pytest.mark.parametrize("name", NAMES)
def test_the_last_row_of_a_step_with_the_tensor_is_found(segment: Segment, name: str) -> None:
    for mode in MODES:
        for step in range(8):
            found = segment.find(name, step, mode)
            rows = [row for row, (m, s, _) in enumerate(ROWS) if (m, s) == (mode, step)]
            values = [expected(name, row) for row in rows]
            wanted = next((value for value in reversed(values) if value is not None), None)
            if wanted is None:
                assert found is None
            else:
                assert found is not None
                np.testing.assert_array_equal(segment.tensor(name, found), wanted)


def test_names_of_a_segment(segment: Segment) -> None:
    assert [name for name in (*NAMES, "losses/loss", "none") if segment.has(name)] == list(NAMES)
    assert len(segment) == len(ROWS)


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("name", NAMES)
def test_rows_by_group(segment: Segment, name: str, mode: Mode | None) -> None:
    found: list[int] = []
    for block in segment.tensor_rows(name):
        kept = block if mode is None else segment.in_mode(block, mode)
        assert kept.group is block.group
        for row in kept.rows.tolist():
            place = row_position(block.group, row)
            assert place is not None
            value = segment.tensor(name, TensorRow(block.group, block.which, place))
            np.testing.assert_array_equal(value, expected(name, row))
        found += kept.rows.tolist()
    assert sorted(found) == rows_of(name, mode)
    assert list(segment.tensor_rows("none")) == []


def rows_of(name: str, mode: Mode | None) -> list[int]:
    return [
        row
        for row, (other, _, _) in enumerate(ROWS)
        if expected(name, row) is not None and mode in (None, other)
    ]


# Matrices


def matrices(segment: Segment) -> dict[str, NDArray[np.float64]]:
    """The three matrices, by the first name of each."""
    some = [row for row, (_, _, captured) in enumerate(ROWS) if captured]
    return {
        "losses/loss": np.array([[row / 7] for row in range(len(ROWS))]),
        "metrics/a": np.array([[row / 4, -row] for row in some]),
        "outputs/always": np.array([[[row / 3, row]] for row in range(len(ROWS))]),
    }


def test_matrices(segment: Segment) -> None:
    wanted = matrices(segment)
    for group in segment.record.columns:
        matrix = segment.matrix(group)
        assert matrix.dtype == np.float64
        np.testing.assert_array_equal(matrix, wanted.pop(group.layout.names[0]), strict=True)
        key, start, length = segment.matrix_span(group)
        content = segment._storage.get(key, start, length)
        np.testing.assert_array_equal(segment.decode_matrix(group, content), matrix)
    assert wanted == {}


def test_rows_of_matrices(segment: Segment) -> None:
    wanted = matrices(segment)
    for group in segment.record.columns:
        whole = wanted[group.layout.names[0]]
        for first in range(len(whole)):
            for count in range(1, len(whole) - first + 1):
                found = segment.matrix_rows(group, first, count)
                np.testing.assert_array_equal(found, whole[first : first + count], strict=True)


@pytest.mark.parametrize("chunk", [1, 7, 8, 40, 1 << 20])
def test_a_matrix_is_verified_in_chunks(segment: Segment, chunk: int) -> None:
    storage = segment._storage
    assert isinstance(storage, Requests)
    for group in segment.record.columns:
        storage.ranges.clear()
        segment.check_matrix(group, chunk)
        span = segment.matrix_span(group)
        assert storage.ranges == [
            (start, min(chunk, span.start + span.length - start))
            for start in range(span.start, span.start + span.length, chunk)
        ]


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_every_wrong_byte_of_a_matrix_is_noticed(
    segment: Segment, tmp_path: Path, chunk: int
) -> None:
    path = file_of(segment, tmp_path)
    (group,) = (
        column for column in segment.record.columns if column.layout.names[0] == "metrics/a"
    )
    _, start, length = segment.matrix_span(group)
    for place in range(start, start + length):
        flip(path, place)
        for read in (lambda: segment.check_matrix(group, chunk), lambda: segment.matrix(group)):
            with pytest.raises(CorruptData) as caught:
                read()
            message = str(caught.value)
            assert message.startswith(f"{path}: columns metrics/a, ... of steps 3 to 6")
            assert "do not match their checksum" in message
        flip(path, place)
    segment.check_matrix(group, chunk)


@pytest.mark.parametrize("missing", [1, 8, 1000])
def test_a_truncated_matrix_is_noticed(segment: Segment, tmp_path: Path, missing: int) -> None:
    path = file_of(segment, tmp_path)
    (group,) = (
        column for column in segment.record.columns if column.layout.names[0] == "losses/loss"
    )
    _, start, length = segment.matrix_span(group)
    content = path.read_bytes()
    path.write_bytes(content[: max(0, start + length - missing)])
    for chunk in (8, 1 << 20):
        with pytest.raises(CorruptData) as caught:
            segment.check_matrix(group, chunk)
        message = str(caught.value)
        assert message.startswith(f"{path}: columns losses/loss of steps 3 to 6 cannot be read")
        assert f"truncated, {len(content)} bytes were committed" in message
    reads: list[Callable[[], object]] = [
        lambda: segment.matrix(group),
        lambda: segment.matrix_rows(group, 6, 1),
    ]
    for read in reads:
        with pytest.raises(CorruptData, match=r"columns losses/loss of .* is truncated"):
            read()


def test_a_missing_segment_is_named_with_its_record(segment: Segment, tmp_path: Path) -> None:
    path = file_of(segment, tmp_path)
    path.unlink()
    problems = Problems()
    group = segment.record.columns[0]
    entry = segment.locate("outputs/some", 3)
    assert entry is not None
    for what, read in (
        ("columns losses/loss", lambda: segment.matrix(group)),
        ("columns losses/loss", lambda: segment.check_matrix(group, 8)),
        ("columns losses/loss", lambda: segment.matrix_rows(group, 0, 1)),
        ("columns losses/loss", lambda: segment.decode_matrix(group, None)),
        ("outputs/some of train step 5", lambda: segment.tensor("outputs/some", entry)),
    ):
        with pytest.raises(CorruptData) as caught:
            read()
        message = str(caught.value)
        assert message.startswith(f"{path}: {what}")
        assert "is missing" in message
        assert segment.record.key in message
    piece = segment.contiguous_rows("outputs/some", "predict")[0]
    assert segment.decode_rows("outputs/some", piece, None, problems) == []
    (problem,) = problems.sentences
    assert problem.startswith(f"{path}: outputs/some of predict step 6 cannot be read")


# Rows of tensors


def read_piece(
    segment: Segment, name: str, piece: ContiguousRows, problems: Problems
) -> list[tuple[int, NDArray[Any]]]:
    content = segment._storage.get(*segment.rows_span(piece))
    assert len(content) == len(piece.rows) * piece.group.layout.row_bytes[piece.which]
    return segment.decode_rows(name, piece, content, problems)


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("name", NAMES)
def test_contiguous_rows(segment: Segment, name: str, mode: Mode | None) -> None:
    problems = Problems()
    pieces = segment.contiguous_rows(name, mode)
    begins = [int(piece.rows[0]) for piece in pieces]
    assert begins == sorted(begins)
    found = {}
    for piece in pieces:
        assert (np.diff(piece.places) == 1).all()
        for row, value in read_piece(segment, name, piece, problems):
            np.testing.assert_array_equal(value, expected(name, row), strict=True)
            assert not value.flags.writeable
            found[row] = value
    assert sorted(found) == rows_of(name, mode)
    assert problems.sentences == []
    # As few as possible: those next to each other in the file are read together.
    assert len(pieces) == {
        ("outputs/always", None): 1,
        ("outputs/always", "train"): 3,
        ("outputs/some", None): 1,
        ("outputs/some", "train"): 2,
        ("alias", None): 3,
        ("alias", "train"): 4,
    }.get((name, mode), 1 if found else 0)


@pytest.mark.parametrize(
    ("size", "lengths"), [(3 << 19, [2, 2, 1]), (4 << 20, [1] * 5), (5 << 20, [1] * 5), (0, [5])]
)
def test_large_rows_are_read_in_several_pieces(
    tmp_path: Path, size: int, lengths: list[int]
) -> None:
    values = [np.full(size, step, np.uint8) for step in range(5)]
    segment = stored(
        tmp_path, [step_record(step, tensors={"x": v}) for step, v in enumerate(values)]
    )
    pieces = segment.contiguous_rows("x", None)
    assert [len(piece.rows) for piece in pieces] == lengths
    found = [pair for piece in pieces for pair in read_piece(segment, "x", piece, Problems())]
    assert [row for row, _ in found] == list(range(5))
    assert all(np.array_equal(value, values[row]) for row, value in found)


def test_a_corrupt_row_is_skipped_and_named(segment: Segment, tmp_path: Path) -> None:
    (piece,) = segment.contiguous_rows("outputs/some", None)
    span = segment.rows_span(piece)
    path = file_of(segment, tmp_path)
    # The second row of the piece, three int16 each.
    flip(path, span.start + 6)
    problems = Problems()
    found = read_piece(segment, "outputs/some", piece, problems)
    assert [row for row, _ in found] == [0, 3, 5, 6]
    assert all(np.array_equal(value, some(row)) for row, value in found)
    (problem,) = problems.sentences
    assert problem.startswith(f"{path}: outputs/some of train step 4: ")
    assert "checksum" in problem


def test_truncated_rows_are_skipped_and_named(segment: Segment) -> None:
    (piece,) = segment.contiguous_rows("outputs/some", None)
    content = segment._storage.get(*segment.rows_span(piece))
    problems = Problems()
    found = segment.decode_rows("outputs/some", piece, content[:-7], problems)
    assert [row for row, _ in found] == [0, 1, 3]
    first, second = problems.sentences
    assert "outputs/some of predict step 6" in first
    assert "outputs/some of train step 6" in second
    assert "truncated" in first


def test_a_corrupt_tensor_is_named_with_its_step(segment: Segment, tmp_path: Path) -> None:
    path = file_of(segment, tmp_path)
    for name, row, size in (("outputs/always", 5, 8), ("outputs/some", 3, 6), ("alias", 1, 6)):
        entry = segment.locate(name, row)
        assert entry is not None
        offset = entry.group.offset + size * entry.place
        flip(path, offset)
        with pytest.raises(CorruptData) as caught:
            segment.tensor(name, entry)
        mode, step, _ = ROWS[row]
        assert str(caught.value).startswith(f"{path}: {name} of {mode} step {step}: ")
        flip(path, offset)
        np.testing.assert_array_equal(segment.tensor(name, entry), expected(name, row))
