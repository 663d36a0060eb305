"""Each format yields what other libraries wrote, and where it is."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.data import written
from tests.property_tests import examples
from vinedresser.data import Dataset
from vinedresser.data.formats.tfrecord import TFRecordFraming
from vinedresser.errors import ConfigError, DamagedData


def open_kind(path: Path, kind: str, **options: object) -> Dataset:
    chosen = {"format": "length_prefixed"} if kind == "length_prefixed" else {}
    return Dataset(path, **{"batch_size": 5, **chosen, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", written.KINDS)
def test_records_are_what_was_written(kind: str, tmp_path: Path) -> None:
    ending, write, record_of = written.KINDS[kind]
    records = written.records(100, longest=3000)
    path = tmp_path / f"data{ending}"
    path.write_bytes(write(records))
    length = 4 if kind in ("npy", "safetensors") else None
    expected = [record[:length] for record in records]
    dataset = open_kind(path, kind, chunk_bytes=1000)
    assert dataset.records == 100
    batches = list(dataset)
    assert [record_of(value) for value in written.values(batches)] == expected
    origins = [origin for batch in batches for origin in batch.origins]
    assert [origin.record for origin in origins] == [*range(100)]
    assert {origin.uri for origin in origins} == {str(path)}
    # In another order, each value still has the origin of its record.
    shuffled = list(open_kind(path, kind, chunk_bytes=1000, seed=1))
    found = {
        origin: record_of(value)
        for batch in shuffled
        for origin, value in zip(batch.origins, batch.values, strict=True)
    }
    assert found == dict(zip(origins, expected, strict=True))
    assert [record_of(value) for value in written.values(shuffled)] != expected


@pytest.mark.parametrize("kind", ["tfrecord", "gzip", "length_prefixed", "tar", "jsonl", "npy"])
def test_an_offset_is_that_of_the_record(kind: str, tmp_path: Path) -> None:
    ending, write, _ = written.KINDS[kind]
    records = written.records(30)
    path = tmp_path / f"data{ending}"
    path.write_bytes(write(records))
    content = gzip.decompress(path.read_bytes()) if kind == "gzip" else path.read_bytes()
    for batch in open_kind(path, kind, seed=3):
        for origin in batch.origins:
            record = records[origin.record]
            match kind:
                case "tfrecord" | "gzip":
                    begin = written.tfrecord([record])
                case "length_prefixed":
                    begin = written.length_prefixed([record])
                case "jsonl":
                    begin = written.json_lines([record])
                case "npy":
                    begin = record[:4]
                case _:
                    with tarfile.open(fileobj=io.BytesIO(content[origin.offset :])) as archive:
                        assert f"/{origin.record:06d}.bin" in archive.getnames()[0]
                    continue
            assert content[origin.offset :].startswith(begin)


@pytest.mark.thorough
def test_tensorflow_writes_the_same_records(tmp_path: Path) -> None:
    import tensorflow as tf

    records = [b"", *written.records(300, longest=5000), bytes(3 << 20)]
    for compression in ("", "GZIP", "ZLIB"):
        path = str(tmp_path / f"{compression}.tfrecord")
        with tf.io.TFRecordWriter(path, compression) as writer:
            for record in records:
                writer.write(record)
        read = list(tf.data.TFRecordDataset(path, compression).as_numpy_iterator())
        assert written.values(Dataset(path, batch_size=7, chunk_bytes=9999)) == read == records


def test_a_record_may_be_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "long.raw"
    records = [b"a", bytes(9 << 20), b"", b"b"]
    path.write_bytes(written.length_prefixed(records))
    assert written.values(open_kind(path, "length_prefixed")) == records


def test_lines_may_be_empty_and_the_last_one_open(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\n \n{"a": "\xc3\xa4"}\r\n\n\n[1]\n   \n"x"')
    dataset = Dataset(path, batch_size=2)
    assert written.values(dataset) == [{"a": "ä"}, [1], "x"]


def test_a_tar_record_has_all_fields_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    names = ["a/1.png", "a/1.Seg.png", "README", ".hidden.txt", "b/1.png", "b/.x", "b/2.json"]
    with tarfile.open(path, "w") as archive:
        archive.addfile(_folder("a"))
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    assert written.values(Dataset(path, batch_size=1)) == [
        {"__key__": "a/1", "png": b"a/1.png", "seg.png": b"a/1.Seg.png"},
        {"__key__": "b/1", "png": b"b/1.png"},
        {"__key__": "b/2", "json": b"b/2.json"},
    ]


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def test_rows_of_arrays_keep_type_and_shape(tmp_path: Path) -> None:
    array = np.arange(2 * 3 * 5, dtype=">i2").reshape(5, 3, 2)
    np.save(tmp_path / "a.npy", array)
    rows = written.values(Dataset(tmp_path / "a.npy", batch_size=2))
    assert all(row.dtype == array.dtype for row in rows)
    np.testing.assert_array_equal(np.stack(rows), array)
    tensors = {"half": array.astype(np.float16), "label": np.arange(5) % 2 == 0}
    (tmp_path / "b.safetensors").write_bytes(safetensors.numpy.save(tensors))
    rows = written.values(Dataset(tmp_path / "b.safetensors", batch_size=2))
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(np.stack([row[name] for row in rows]), tensor)


def test_columns_of_parquet_are_selected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": [1, 2, 3], "label": ["a", None, "c"]}), path)
    dataset = Dataset(path, batch_size=3, columns=["label"])
    assert written.values(dataset) == [{"label": "a"}, {"label": None}, {"label": "c"}]
    with pytest.raises(ConfigError, match=r"a.parquet: no column 'labl'; did you mean label\?"):
        next(iter(Dataset(path, batch_size=3, columns=["labl"])))


OTHERS = {
    "text": (b"image,label\n" * 100, "text"),
    "a pickle": (b"\x80\x04\x95" + bytes(100), "a pickle"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"),
    "gzip": (gzip.compress(b"x" * 100), "gzip"),
    "tar": (written.tar(written.records(3)), "a tar archive"),
    "npy": (written.npy(written.records(30)), "an npy file"),
    "parquet": (written.parquet_file(written.records(30)), "Parquet"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", ["tfrecord", "tar", "npy", "safetensors", "parquet"])
def test_a_file_of_another_kind_is_named(kind: str, other: str, tmp_path: Path) -> None:
    if other == kind:
        return
    content, name = OTHERS[other]
    path = tmp_path / f"data{written.KINDS[kind][0]}"
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=rf"(?s){path}: record 0 .*: not a.*looks like {name}"):
        Dataset(path, batch_size=1)


def test_arrays_that_are_no_rows_are_refused(tmp_path: Path) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(DamagedData, match=message):
            Dataset(tmp_path / name, batch_size=1)

    np.save(tmp_path / "a.npy", np.float32(1))
    refused("a.npy", "is a scalar, and has no rows")
    np.save(tmp_path / "b.npy", np.array([{}, 1]), allow_pickle=True)
    refused("b.npy", "Python objects, which only pickle could read")
    np.save(tmp_path / "c.npy", np.ones((3, 2), order="F"))
    refused("c.npy", "save it in C order")
    (tmp_path / "d.npy").write_bytes(written.npy(written.records(30))[:-1])
    refused("d.npy", "it is cut off")
    tensors = {"x": np.ones(3), "y": np.ones(4)}
    (tmp_path / "e.safetensors").write_bytes(safetensors.numpy.save(tensors))
    refused("e.safetensors", r"'\w' has \d rows, and '\w' has \d")
    (tmp_path / "f.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    refused("f.safetensors", "header does not fit")


@given(
    runs=st.lists(st.tuples(st.sampled_from([0, 3, 30]), st.integers(1, 40)), max_size=6),
    cut=st.integers(0, 20),
)
@examples(100)
def test_records_of_one_length_are_divided_like_others(
    runs: list[tuple[int, int]], cut: int
) -> None:
    lengths = [length for length, count in runs for _ in range(count)]
    content = written.tfrecord(bytes(length) for length in lengths)
    content = content[: max(len(content) - cut, 0)]
    ends = [*accumulate((length + 16 for length in lengths), initial=0)]
    found, wrong = TFRecordFraming().boundaries(content, final=True)
    assert found == [end for end in ends if end <= len(content)]
    assert bool(wrong) == (found[-1] < len(content))
