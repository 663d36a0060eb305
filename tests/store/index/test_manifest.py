"""Manifests are equal to the records that they copy, and refused if they are not theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastcrc import crc32

from vinedresser.errors import CorruptData
from vinedresser.store.index.codec import encode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.index.manifest import SPAN, ManifestBuilder, decode_manifest
from vinedresser.store.segments.packing import pack
from vinedresser.testing.runs import step_record

RANK = 3


def record_of(seq: int, *, names: int = 1, width: int = 0) -> IndexRecord:
    """Return a record with columns, statistics, tensors and an alias now and then."""
    tensors = {
        f"{number}-{'x' * width}": np.full(2, seq, np.int16) for number in range(1 + seq % names)
    }
    record = step_record(
        seq,
        at=1000.0 + seq,
        scalars={"losses/loss": seq / 7},
        reductions={"gradients/a": {"l2": float(seq)}} if seq % 2 else {},
        tensors=tensors,
    )
    if seq % 3 == 0:
        record.tensors["alias"] = next(iter(record.tensors.values()))
    segment = pack([record], rank=RANK, seq=seq)
    list(segment.parts())
    return segment.record(dropped=seq % 5)


def built(records: Iterator[IndexRecord]) -> dict[int, bytes]:
    """Return the manifests, by the number of the record that completes each."""
    builder = ManifestBuilder(RANK)
    found = ((record.seq, builder.add(record)) for record in records)
    return {seq: manifest for seq, manifest in found if manifest is not None}


@pytest.fixture(scope="module")
def manifests() -> dict[int, bytes]:
    return built(record_of(seq, names=4) for seq in range(2 * SPAN + 5))


@pytest.fixture
def document(manifests: dict[int, bytes]) -> Any:
    """The second manifest."""
    return json.loads(manifests[2 * SPAN - 1])["manifest"]


def decoded(document: Any) -> list[IndexRecord]:
    content = json.dumps(document).encode()
    sealed = b'{"crc32c":"%08x","manifest":%s}' % (crc32.iscsi(content), content)
    return decode_manifest(sealed, LayoutPool(), RANK, 1)


def test_a_manifest_is_complete_with_its_last_record(manifests: dict[int, bytes]) -> None:
    assert list(manifests) == [SPAN - 1, 2 * SPAN - 1]


def test_its_records_are_those_added() -> None:
    manifests = built(record_of(seq, names=4) for seq in range(2 * SPAN))
    for number, content in enumerate(manifests.values()):
        found = decode_manifest(content, LayoutPool(), RANK, number)
        assert [encode_record(record) for record in found] == [
            encode_record(record_of(number * SPAN + place, names=4)) for place in range(SPAN)
        ]


def test_each_manifest_has_its_own_layouts(document: Any) -> None:
    layouts = [json.dumps(layout) for layout in document["layouts"]]
    # The loss, the statistic, one to four tensors, and the alias.
    assert len(layouts) == len(set(layouts)) == 1 + 1 + 4 + 1
    numbers = [
        group["layout"]
        for record in document["records"]
        for group in (*record["columns"], *record["tensors"], *record.get("aliases", []))
    ]
    # In the order of their first use.
    assert list(dict.fromkeys(numbers)) == list(range(len(layouts)))


def test_equal_layouts_are_shared(document: Any) -> None:
    records = decoded(document)
    assert len({id(record.columns[0].layout) for record in records}) == 1
    assert len({id(record.tensors[0].layout) for record in records}) == 4


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("format", 2, "format 2 is not supported, only 1"),
        ("rank", 4, "the manifest of rank 4 from segment 100"),
        ("first", 0, "the manifest of rank 3 from segment 0"),
        ("first", "100", "first of the manifest is '100', not an integer"),
        ("layouts", None, "layouts of the manifest is None, not a list"),
        ("layouts", [3], "the layout is 3, not a JSON object"),
        ("layouts", [], "layout of the group of columns is 0"),
        ("records", 7, "records of the manifest is 7, not a list"),
        ("records", [], f"the manifest has 0 records, not {SPAN}"),
        ("records", [3] * SPAN, "the record is 3, not a JSON object"),
    ],
)
def test_an_invalid_value_is_refused(document: Any, key: str, value: Any, complaint: str) -> None:
    document[key] = value
    with pytest.raises(CorruptData, match=complaint):
        decoded(document)


@pytest.mark.parametrize("key", ["format", "rank", "first", "layouts", "records"])
def test_a_missing_key_is_named(document: Any, key: str) -> None:
    del document[key]
    with pytest.raises(CorruptData, match=f"^the manifest has no {key}$"):
        decoded(document)


@pytest.mark.parametrize("count", [SPAN - 1, SPAN + 1])
def test_it_has_all_its_records(document: Any, count: int) -> None:
    document["records"] = (2 * document["records"])[:count]
    with pytest.raises(CorruptData, match=f"{count} records, not {SPAN}"):
        decoded(document)


def test_a_group_refers_to_a_layout_of_its_kind(document: Any) -> None:
    layouts = document["layouts"]
    tensors = next(number for number, layout in enumerate(layouts) if "dtype" in layout)
    document["records"][7]["tensors"][0]["layout"] = len(layouts)
    with pytest.raises(CorruptData, match=f"layout of the group of tensors is {len(layouts)}, .* "):
        decoded(document)
    document["records"][7]["tensors"][0]["layout"] = 0 if tensors else 1
    with pytest.raises(CorruptData, match="the layout has no dtype"):
        decoded(document)


def test_it_is_sealed(manifests: dict[int, bytes]) -> None:
    content = bytearray(manifests[SPAN - 1])
    content[500] ^= 1
    with pytest.raises(CorruptData, match="checksum"):
        decode_manifest(bytes(content), LayoutPool(), RANK, 0)
    with pytest.raises(CorruptData, match="not a sealed manifest"):
        decode_manifest(encode_record(record_of(0)), LayoutPool(), RANK, 0)


def test_a_record_counts_from_the_start_of_its_manifest(document: Any) -> None:
    assert [(record.rank, record.seq) for record in decoded(document)] == [
        (RANK, SPAN + place) for place in range(SPAN)
    ]


@pytest.mark.parametrize(("width", "complete"), [(7_500, True), (7_550, False)])
def test_a_large_manifest_is_omitted_and_the_next_is_not(width: int, complete: bool) -> None:
    """Names of this width and layouts that differ; the limit is 1 MiB."""

    def records() -> Iterator[IndexRecord]:
        for seq in range(2 * SPAN):
            yield record_of(seq, width=width + seq if seq < SPAN else 0)

    manifests = built(records())
    assert list(manifests) == ([SPAN - 1, 2 * SPAN - 1] if complete else [2 * SPAN - 1])
    assert len(decode_manifest(manifests[2 * SPAN - 1], LayoutPool(), RANK, 1)) == SPAN
    for content in manifests.values():
        assert len(content) < (1 << 20) + 1000
