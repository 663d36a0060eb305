"""Damaged files: no wrong record is delivered, and the damage is named."""

from __future__ import annotations

import gzip
import json
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.data import mutants, written
from tests.data.written import KINDS
from vinedresser.data import Dataset
from vinedresser.data.formats.registry import open_format
from vinedresser.errors import DamagedData

RECORDS = written.records(60, longest=60)


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """Return content with a flipped bit, cut off, or with bytes removed, inserted or repeated."""
    place = int(generator.integers(len(content)))
    length = int(generator.integers(1, 30))
    match int(generator.integers(5)):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + content[place + length :]
        case 2:
            return content[:place] + generator.bytes(length) + content[place:]
        case 3:
            return content[: place + length] + content[place:]
    changed = bytearray(content)
    changed[place] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def delivered(path: Path) -> tuple[list[tuple[int, bytes]], list[DamagedData]]:
    """Return the records of a file by offset, and the damage; an unreadable file has none."""
    try:
        dataset = Dataset(path, batch_size=7, skip_damaged=1000)
        found = [
            (origin.offset, value)
            for batch in dataset
            for origin, value in zip(batch.origins, batch.values, strict=True)
        ]
    except DamagedData as error:
        return [], [error]
    return found, dataset.damaged


def check_mutants(folder: Path, count: int) -> None:
    content = written.tfrecord(RECORDS)
    originals = set(RECORDS)
    for number in range(count):
        path = folder / f"{number}.tfrecord"
        changed = mutated(content, np.random.default_rng(number))
        path.write_bytes(changed)
        if not changed:
            continue
        found, damaged = delivered(path)
        assert all(value in originals for _, value in found)
        assert all(changed[offset + 12 :].startswith(value) for offset, value in found)
        # A cut between two records, or one removed or repeated whole, cannot be noticed.
        whole = changed == written.tfrecord(value for _, value in found)
        assert damaged or whole


def test_no_wrong_record_is_delivered(tmp_path: Path) -> None:
    check_mutants(tmp_path, 60)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# NumPy warns of headers that only its old versions wrote.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_no_wrong_record_is_delivered_of_any_format() -> None:
    mutants.check_all(range(1_000))
    before = peak_bytes()
    mutants.check_all(range(1_000, 7_000))
    assert peak_bytes() - before < 64 << 20


# Five minutes of processor time.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_no_wrong_record_is_delivered_of_a_million(part: int) -> None:
    first = 7_000 + part * 250_000
    mutants.check_all(range(first, first + 1_000))
    before = peak_bytes()
    mutants.check_all(range(first + 1_000, first + 250_000))
    assert peak_bytes() - before < 64 << 20


def test_damaged_compressed_lines_are_not_delivered_before_their_checksum(tmp_path: Path) -> None:
    # Longer than the decompressor's steps; a flipped bit of stored text is text, too.
    lines = b"".join(b'{"number": %07d}\n' % (1_000_000 + n) for n in range(300_000))
    changed = bytearray(gzip.compress(lines, compresslevel=0))
    changed[1000] ^= 1
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(bytes(changed) + gzip.compress(b"1\n2\n"))
    with pytest.raises(DamagedData, match=r"record 0 at byte 0: .*compressed data is damaged"):
        Dataset(path, batch_size=7, skip_damaged=9)
    # What is before the damaged stream was verified.
    path.write_bytes(gzip.compress(b"1\n2\n") + bytes(changed))
    dataset = Dataset(path, batch_size=7, skip_damaged=9)
    assert written.values(dataset) == [1, 2]
    assert [error.record for error in dataset.damaged] == [2]


@dataclass(frozen=True)
class Endless:
    """An object of 5 GB that is one record, as its length or the lack of line feeds says."""

    uri: str = "endless"
    size: int = 5 << 30
    version: str = ""

    def read(self, start: int, stop: int) -> bytes:
        assert start < 2 << 30, "it is held in memory"
        return b"\xff" * (stop - start)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["length_prefixed", "jsonl"])
def test_a_record_without_an_end_does_not_fill_the_memory(kind: str) -> None:
    with pytest.raises(DamagedData, match="a record of more than 1 GiB"):
        open_format(kind).marks(Endless())


def test_each_flipped_bit_of_a_content_costs_its_record(tmp_path: Path) -> None:
    content = written.tfrecord(RECORDS)
    offsets = np.cumsum([0, *(len(record) + 16 for record in RECORDS)]).tolist()
    for number in (0, 31, 59):
        for place in (offsets[number] + 12, offsets[number + 1] - 1):
            path = tmp_path / f"{place}.tfrecord"
            changed = bytearray(content)
            changed[place] ^= 64
            path.write_bytes(changed)
            with pytest.raises(DamagedData) as caught:
                list(Dataset(path, batch_size=7))
            error = caught.value
            assert (error.uri, error.offset, error.record) == (str(path), offsets[number], number)
            assert str(error) == (
                f"{path}: record {number} at byte {offsets[number]}: the checksum does not match"
            )
            found, damaged = delivered(path)
            assert [value for _, value in found] == RECORDS[:number] + RECORDS[number + 1 :]
            assert [one.record for one in damaged] == [number]


def test_a_damaged_length_costs_the_rest_of_its_object_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tfrecord").write_bytes(written.tfrecord(RECORDS))
    changed = bytearray(written.tfrecord(RECORDS))
    offset = sum(len(record) + 16 for record in RECORDS[:20])
    changed[offset] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(changed)
    with pytest.raises(DamagedData, match=rf"a.tfrecord: record 20 at byte {offset}: .*its length"):
        Dataset(tmp_path, batch_size=7)
    dataset = Dataset(tmp_path, batch_size=7, skip_damaged=1)
    assert written.values(dataset) == RECORDS[:20] + RECORDS
    assert [(error.record, error.offset) for error in dataset.damaged] == [(20, offset)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("npy", "safetensors")])
def test_a_file_that_is_cut_off_is_noticed(kind: str, tmp_path: Path) -> None:
    ending, write, record_of = KINDS[kind]
    path = tmp_path / f"data{ending}"
    content = write(RECORDS)
    if kind == "jsonl":
        content = content[:-20]
    elif kind in ("tar", "gnu"):
        content = content[: content.rindex(b"000059.Number.txt") - 200]
    else:
        content = content[: len(content) * 9 // 10]
    path.write_bytes(content)
    options = {"format": "length_prefixed"} if kind == "length_prefixed" else {}
    with pytest.raises(DamagedData, match=f"{path}: record "):
        list(Dataset(path, batch_size=7, **options))  # type: ignore[arg-type]
    if kind == "parquet":
        return
    dataset = Dataset(path, batch_size=7, skip_damaged=1, **options)  # type: ignore[arg-type]
    found = [record_of(value) for value in written.values(dataset)]
    assert 0 < len(found) < len(RECORDS)
    assert found == RECORDS[: len(found)]
    assert [error.record for error in dataset.damaged] == [len(found)]


def test_more_damage_than_may_be_left_out_is_an_error(tmp_path: Path) -> None:
    lines = [json.dumps(number) if number % 10 else "{" for number in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    dataset = Dataset(tmp_path, batch_size=9, seed=1, skip_damaged=10)
    for _ in range(2):
        assert sorted(written.values(dataset)) == [n for n in range(100) if n % 10]
        assert sorted(error.record for error in dataset.damaged) == [*range(0, 100, 10)]
    dataset = Dataset(tmp_path, batch_size=9, skip_damaged=9)
    with pytest.raises(DamagedData, match=r"a.jsonl: record 90 at byte .*: not valid JSON: "):
        list(dataset)


def test_damage_that_came_after_the_index_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(written.tfrecord(RECORDS)))
    found = path.stat()
    dataset = Dataset(path, batch_size=7)
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(changed)
    # With the old time, it looks unchanged.
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(DamagedData, match=rf"{path}: record \d+ at byte \d+: "):
        list(dataset)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n22 \n33 \n")
    found = path.stat()
    dataset = Dataset(path, batch_size=7)
    path.write_bytes(b"1\n2\n2\n33 \n")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(DamagedData, match="record 2 at byte 4: the object has more records than"):
        list(dataset)


def test_a_long_line_is_divided_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    long = "x" * (6 << 20)
    path.write_text(f'1\n"{long}"\n2\n', encoding="utf-8")
    assert written.values(Dataset(path, batch_size=7)) == [1, long, 2]
