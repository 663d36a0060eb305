"""Data is converted to TFRecords, and any single record is found by its place."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data import written
from vinedresser.data import Dataset, decode_example
from vinedresser.data.converting import convert
from vinedresser.data.locating import find_record
from vinedresser.errors import ConfigError, DamagedData


@pytest.mark.parametrize("kind", written.KINDS)
def test_a_record_is_found_by_its_place(tmp_path: Path, kind: str) -> None:
    ending, write, record_of = written.KINDS[kind]
    records = written.records(25, longest=60_000)
    path = tmp_path / f"a{ending}"
    path.write_bytes(write(records))
    name = "length_prefixed" if kind == "length_prefixed" else None
    (batch,) = Dataset(path, batch_size=25, format=name)
    for place in (0, 11, 24):
        origin = batch.origins[place]
        by_number = find_record(f"{path}#{place}", format=name)
        assert by_number.origin.record == place
        assert record_of(by_number.value) == record_of(batch.values[place])
        if kind == "parquet":
            with pytest.raises(ConfigError, match="rows of Parquet have no byte of their own"):
                find_record(f"{path}:{origin.offset}")
        else:
            found = find_record(f"{path}:{origin.offset}", format=name)
            assert found.origin == by_number.origin == origin
    for sign, beyond in (("#", 25), ("#", 10**12), (":", 10**12)):
        if (sign, kind) != (":", "parquet"):
            with pytest.raises(ConfigError, match="no such record; the object has 25 records"):
                find_record(f"{path}{sign}{beyond}", format=name)


def test_a_damaged_record_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    content = bytearray(written.tfrecord([b"first", b"second", b"third"]))
    content[21 + 12] ^= 1
    path.write_bytes(content)
    found = find_record(f"{path}:30")
    assert (found.origin.record, found.value, found.damage) == (
        *(1, b"recond"),
        "the checksum does not match",
    )
    content[21 + 22] ^= 1
    path.write_bytes(content)
    found = find_record(f"{path}#2")
    assert (found.origin.record, found.value) == (2, None)
    assert found.damage == "the checksum of its length does not match"


def test_fields_become_examples(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"text": f"t{number}", "label": number % 2, "x": [0.5, number]} for number in range(9)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = []
    done = convert(
        tmp_path / "a.jsonl",
        str(tmp_path / "lines"),
        class_field="label",
        progress=lambda *both: counts.append(both),
    )
    assert counts == [(9, 9)]
    assert [Path(part).parent.name for part in done.records] == ["0", "1"]
    odd = written.values(Dataset(tmp_path / "lines/1", batch_size=9, decode=decode_example))
    assert [one["text"] for one in odd] == [[line["text"].encode()] for line in lines[1::2]]
    assert [one["x"].tolist() for one in odd] == [line["x"] for line in lines[1::2]]
    # From TFRecords by class, unchanged.
    convert(tmp_path / "lines", str(tmp_path / "again"), class_field="label")
    for path in (tmp_path / "lines").glob("*/part*"):
        assert (tmp_path / "again" / path.parent.name / path.name).read_bytes() == path.read_bytes()
    table = io.BytesIO()
    parquet.write_table(pa.table({"a": [1, 2], "b": [None, "x"], "c": [[], [1.5]]}), table)
    (tmp_path / "a.parquet").write_bytes(table.getvalue())
    convert(tmp_path / "a.parquet", str(tmp_path / "rows"), columns=["a", "b"])
    rows = written.values(Dataset(tmp_path / "rows", batch_size=2, decode=decode_example))
    assert rows == [{"a": [1]}, {"a": [2], "b": [b"x"]}]
    (tmp_path / "a.tgz").write_bytes(gzip.compress(written.tar([b"abcd"])))
    convert(tmp_path / "a.tgz", str(tmp_path / "tar"))
    (record,) = written.values(Dataset(tmp_path / "tar", batch_size=2, decode=decode_example))
    assert (record["bin"], record["number.txt"]) == ([b"abcd"], [b"0"])
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    convert(tmp_path / "a.npy", str(tmp_path / "arrays"))
    arrays = written.values(Dataset(tmp_path / "arrays", batch_size=2, decode=decode_example))
    assert [array["value"].tolist() for array in arrays] == [[0, 1, 2], [3, 4, 5]]


def test_each_file_is_a_record(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    batches = list(Dataset(tmp_path / "images", batch_size=2, format="files"))
    assert written.values(batches) == [b"cat/1.png", b"cat/2.png", b"dog/1.png"]
    assert batches[1].origins[0] == (f"{tmp_path}/images/dog/1.png", 0, 0)
    convert(tmp_path / "images", str(tmp_path / "data"), format="files", class_field="folder")
    (cat, dog) = (
        written.values(Dataset(tmp_path / "data" / one, batch_size=2, decode=decode_example))
        for one in ("cat", "dog")
    )
    assert dog == [{"name": [b"1.png"], "folder": [b"dog"], "content": [b"dog/1.png"]}]
    assert len(cat) == 2


def test_what_cannot_be_converted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def said(line: str, field: str | None, kind: type[Exception] = ConfigError) -> str:
        path.write_text(f'{{"label": 1}}\n{line}\n')
        with pytest.raises(kind) as raised:
            convert(path, str(tmp_path / "out"), class_field=field)
        return str(raised.value).removeprefix(f"{path}: record 1 at byte 13: ")

    assert said('{"lable": 1}', "label") == "no field 'label'; did you mean lable?"
    assert said('{"label": [1, 2]}', "label") == "the field 'label' is not a class but [1, 2]"
    assert said('{"label": {"x": 1}}', None).startswith("feature 'label': a value of the type dict")
    assert said("[1]", None) == "a value of the type list has no named fields"
    assert "not valid JSON" in said("{", None, DamagedData)
    assert said('{"label": "a/b"}', "label").startswith("record 1: the class 'a/b' cannot be")
    place = str(tmp_path / "a.png")
    Path(place).touch()
    with pytest.raises(ConfigError, match=r"a.png: its ending stands for no format; set format to"):
        convert(place, str(tmp_path / "out"))
    for wrong in ("a.jsonl", "#3"):
        with pytest.raises(ConfigError, match=r"must be URI:OFFSET or URI#RECORD"):
            find_record(wrong)
