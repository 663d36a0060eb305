"""Segments and index records, byte by byte and as read by the safetensors library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fastcrc import crc32
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load

from vinedresser.errors import CorruptData
from vinedresser.store.index.codec import decode_record, encode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.segments.packing import pack
from vinedresser.store.step_record import HostTensor, StepRecord
from vinedresser.testing.runs import step_record

# Three records: two train steps with a tensor and a loss, and an evaluation between them.
RECORDS = [
    step_record(
        6,
        at=1000.25,
        tensors={"weights/a": np.array([[1, 2]], np.float32)},
        scalars={"losses/loss": 0.5},
        reductions={"gradients/a": {"min": -1.0, "max": 2.0}},
    ),
    step_record(7, mode="eval", at=1000.25, scalars={"metrics/accuracy": 0.75}),
    step_record(
        7,
        at=1000.250017,
        tensors={"weights/a": np.array([[3, 4]], np.float32)},
        scalars={"losses/loss": 0.25},
    ),
]

HEADER = (
    b'{"__metadata__":{"format":"vinedresser.segment.1","rank":"2","seq":"5",'
    b'"rows":"[\\"tet\\",[6,7,7]]",'
    b'"columns":"[[\\"columns#1\\",[\\"losses/loss\\"],null,[0,2]],'
    b'[\\"columns#2\\",[\\"gradients/a\\"],[\\"min\\",\\"max\\"],[0]],'
    b'[\\"columns#3\\",[\\"metrics/accuracy\\"],null,[1]]]",'
    b'"partial":"[[[0,2],[\\"weights/a\\"]]]"},'
    b'"columns#1":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},'
    b'"columns#2":{"dtype":"F64","shape":[1,1,2],"data_offsets":[16,32]},'
    b'"columns#3":{"dtype":"F64","shape":[1,1],"data_offsets":[32,40]},'
    b'"weights/a":{"dtype":"F32","shape":[2,1,2],"data_offsets":[40,56]}}'
)
DATA = np.array([0.5, 0.25, -1, 2, 0.75]).tobytes() + np.array([1, 2, 3, 4], np.float32).tobytes()


def packed(
    records: Sequence[StepRecord], *, rank: int = 0, seq: int = 0, dropped: int = 0
) -> tuple[bytes, IndexRecord]:
    """Return the bytes of a segment and its index record."""
    segment = pack(records, rank=rank, seq=seq)
    return b"".join(segment.parts()), segment.record(dropped=dropped)


def file_of(*records: StepRecord) -> bytes:
    return packed(records)[0]


def test_the_bytes_of_a_segment() -> None:
    content = packed(RECORDS, rank=2, seq=5)[0]
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert content[8 : 8 + length].rstrip(b" ") == HEADER
    assert content[8 + length :] == DATA


def test_the_bytes_of_an_index_record() -> None:
    content, record = packed(RECORDS, rank=2, seq=5, dropped=3)
    begin = len(content) - len(DATA)
    sums = [f"{crc32.iscsi(DATA[a:b]):08x}" for a, b in [(0, 16), (16, 32), (32, 40)]]
    tensors = "".join(f"{crc32.iscsi(DATA[a : a + 8]):08x}" for a in (40, 48))
    expected = (
        f'{{"format":1,"rank":2,"seq":5,"bytes":{begin + 56},'
        '"modes":"tet","steps":[6,7,7],"time":1000.25,"microseconds":[0,0,17],"dropped":3,'
        '"columns":['
        '{"names":["losses/loss"],"reductions":null,"rows":[0,2],'
        f'"offset":{begin},"crc32c":"{sums[0]}"}},'
        '{"names":["gradients/a"],"reductions":["min","max"],"rows":[0],'
        f'"offset":{begin + 16},"crc32c":"{sums[1]}"}},'
        '{"names":["metrics/accuracy"],"reductions":null,"rows":[1],'
        f'"offset":{begin + 32},"crc32c":"{sums[2]}"}}],'
        '"tensors":[{"dtype":"F32","names":["weights/a"],"shapes":[[1,2]],"rows":[0,2],'
        f'"offset":{begin + 40},"crc32c":"{tensors}"}}]}}'
    ).encode()
    wrapped = b'{"crc32c":"%08x","record":%s}' % (crc32.iscsi(expected), expected)
    assert encode_record(record) == wrapped
    assert json.loads(wrapped)["record"]["seq"] == 5


def test_an_index_record_is_read_as_it_was() -> None:
    content = encode_record(packed(RECORDS, rank=2, seq=5, dropped=3)[1])
    record = decode_record(content, LayoutPool(), 2, 5)
    assert encode_record(record) == content
    assert record.key == "index/2/000000000005.json"
    assert record.segment == "segments/2/000000000005.safetensors"
    np.testing.assert_allclose(record.rows.times, [1000.25, 1000.25, 1000.250017], atol=1e-7)


def test_every_flipped_bit_of_an_index_record_is_noticed() -> None:
    content = encode_record(packed(RECORDS[1:2])[1])
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 1
        with pytest.raises(CorruptData):
            decode_record(bytes(broken), LayoutPool(), 0, 0)


@pytest.mark.parametrize("length", [0, 5, 25, 40, 200])
def test_a_truncated_index_record_is_noticed(length: int) -> None:
    content = encode_record(packed(RECORDS)[1])
    with pytest.raises(CorruptData):
        decode_record(content[:length], LayoutPool(), 0, 0)


def test_an_index_record_of_a_later_format_is_refused() -> None:
    record = b'{"format":2}'
    content = b'{"crc32c":"%08x","record":%s}' % (crc32.iscsi(record), record)
    with pytest.raises(CorruptData, match="format 2"):
        decode_record(content, LayoutPool(), 0, 0)


def test_safetensors_reads_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "segment.safetensors"
    path.write_bytes(packed(RECORDS, rank=2, seq=5)[0])
    with safe_open(path, "numpy") as opened:
        metadata = opened.metadata()
        np.testing.assert_array_equal(opened.get_tensor("weights/a"), [[[1, 2]], [[3, 4]]])
        for entry, names, reductions, rows in json.loads(metadata["columns"]):
            shape = (len(rows), len(names), *([] if reductions is None else [len(reductions)]))
            assert opened.get_tensor(entry).shape == shape
    assert json.loads(metadata["rows"]) == ["tet", [6, 7, 7]]


@pytest.mark.parametrize(
    "dtype",
    sorted({np.dtype(code).name for code in "?bBhHeiIfFdqQ"}),
)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3)])
def test_safetensors_reads_every_type_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    found = load(file_of(step_record(0, tensors={"x": values}), step_record(1)))["x"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values[None])


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e5m2fnuz"]
)
def test_types_that_numpy_lacks_keep_their_bytes(dtype: str) -> None:
    values = np.array([0.5, 1, 2, 4], getattr(ml_dtypes, dtype))
    content = file_of(step_record(0, tensors={"x": values}))
    assert content.endswith(values.tobytes())
    # Only torch knows how the library would show them; that it accepts the file is enough here.
    length = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8 : 8 + length])["x"]
    assert entry["shape"] == [1, 4]


def test_a_tensor_that_changes_shape_has_several_entries() -> None:
    tensors: list[dict[str, NDArray[Any]]] = [
        {"x": np.zeros(2, np.float32), "x#1": np.ones(1, np.int8)},
        {"x": np.ones((2, 2), np.float32), "x#1": np.ones(1, np.int8)},
        {"x": np.zeros(2, np.int64), "__metadata__": np.ones(1, np.int8)},
    ]
    content = file_of(*(step_record(step, tensors=each) for step, each in enumerate(tensors)))
    length = int.from_bytes(content[:8], "little")
    variants = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["variants"])
    found = load(content)
    assert variants == {"x#2": "x", "x#3": "x", "__metadata__#1": "__metadata__"}
    shapes = {entry: array.shape for entry, array in found.items()}
    assert sorted(shapes) == ["__metadata__#1", "x", "x#1", "x#2", "x#3"]
    assert shapes["x#1"] == (2, 1)
    assert {shapes["x"], shapes["x#2"], shapes["x#3"]} == {(1, 2), (1, 2, 2)}


def test_entries_are_aligned_to_their_type() -> None:
    tensors: dict[str, NDArray[Any]] = {
        "odd": np.zeros(3, np.int8),
        "half": np.zeros(3, np.float16),
        "wide": np.zeros(3, np.float64),
        "single": np.zeros(3, np.float32),
    }
    content = file_of(
        step_record(0, tensors=tensors), step_record(1, tensors={"odd2": tensors["odd"]})
    )
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for name, values in tensors.items():
        assert (8 + length + header[name]["data_offsets"][0]) % values.itemsize == 0


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (HostTensor("F32", (2, 2), np.zeros(3, np.float32)), "12 bytes"),
        (HostTensor("F32", (3,), np.zeros(3, np.float64)), "24 bytes"),
        (HostTensor("C128", (3,), np.zeros(3, np.complex128)), "C128"),
    ],
)
def test_a_tensor_of_the_wrong_size_is_refused(tensor: HostTensor, complaint: str) -> None:
    with pytest.raises(CorruptData, match=f"weights/a at train step 4: .*{complaint}"):
        pack([StepRecord("train", 4, 0.0, {"weights/a": tensor})], rank=0, seq=0)


def test_non_contiguous_tensors_are_stored_contiguously() -> None:
    turned = np.arange(6, dtype=np.int16).reshape(2, 3).T
    record = StepRecord("train", 0, 0.0, {"x": HostTensor("I16", turned.shape, turned)})
    np.testing.assert_array_equal(load(file_of(record))["x"][0], turned)
