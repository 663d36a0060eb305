"""Index records with a right checksum and wrong contents are refused, naming key and remedy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fastcrc import crc32

from vinedresser.errors import CorruptData
from vinedresser.store.index.codec import decode_record, encode_record
from vinedresser.store.index.index_record import IndexRecord
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.segments.packing import pack
from vinedresser.testing.runs import host_tensor, step_record

RANK, SEQ = 2, 5
INT64 = 2**63 - 1


def sealed(record: object) -> bytes:
    content = json.dumps(record).encode()
    return b'{"crc32c":"%08x","record":%s}' % (crc32.iscsi(content), content)


def decoded(document: object) -> IndexRecord:
    return decode_record(sealed(document), LayoutPool(), RANK, SEQ)


@pytest.fixture
def document() -> Any:
    """The JSON of a record of three rows, with columns, statistics, tensors and an alias."""
    records = [
        step_record(
            6,
            at=1000.25,
            tensors={"a": np.ones((1, 2), np.float32), "b": np.ones(3, np.float32)},
            scalars={"losses/loss": 0.5},
            reductions={"c": {"min": -1.0, "max": 2.0}},
        ),
        step_record(7, mode="eval", at=1000.25, scalars={"metrics/accuracy": 0.75}),
        step_record(
            7,
            mode="predict",
            at=1000.250017,
            tensors={"a": np.ones((1, 2), np.float32), "b": np.ones(3, np.float32)},
            scalars={"losses/loss": 0.25},
        ),
    ]
    for record in records:
        if "a" in record.tensors:
            record.tensors["alias"] = record.tensors["a"]
        record.tensors["whole"] = host_tensor(np.ones(4, np.int8))
    segment = pack(records, rank=RANK, seq=SEQ)
    list(segment.parts())
    return json.loads(encode_record(segment.record()))["record"]


def changed(document: Any, path: Sequence[str | int], value: Any) -> Any:
    """Replace a value of the document."""
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return document


LOSS, STATISTICS = ("columns", 0), ("columns", 1)
SOME, WHOLE = ("tensors", 0), ("tensors", 1)
ALIAS = ("aliases", 0)


def test_the_groups_of_the_example(document: Any) -> None:
    record = decoded(document)
    assert record.rows.letters() == "tep"
    assert record.rows.steps.tolist() == [6, 7, 7]
    loss, statistics, accuracy = record.columns
    assert [group.layout.names for group in record.columns] == [
        ("losses/loss",),
        ("c",),
        ("metrics/accuracy",),
    ]
    assert (loss.layout.reductions, statistics.layout.reductions) == (None, ("min", "max"))
    assert [None if one.rows is None else one.rows.tolist() for one in (loss, accuracy)] == [
        [0, 2],
        [1],
    ]
    assert statistics.offset - loss.offset == 16
    assert accuracy.offset - statistics.offset == 16
    some, whole = record.tensors
    assert (some.layout.dtype, some.layout.names) == ("F32", ("a", "b"))
    assert some.layout.shapes == ((1, 2), (3,))
    assert some.checksums.shape == (2, 2)
    assert whole.rows is None
    assert whole.checksums.tolist() == [[crc32.iscsi(b"\1\1\1\1")] * 3]
    (alias,) = record.aliases
    assert (alias.layout.names, alias.layout.targets) == (("alias",), ("a",))
    assert (record.rank, record.seq, record.size) == (RANK, SEQ, document["bytes"])
    assert record.dropped == 0


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (["format"], 2, "format 2 is not supported, only 1"),
        (["rank"], 3, "the record of segment 5 of rank 3"),
        (["seq"], 4, "the record of segment 4 of rank 2"),
        (["rank"], "2", "rank of the record is '2', not an integer"),
        (["bytes"], -1, "bytes of the record is -1, not an integer from 0"),
        (["bytes"], True, "bytes of the record is True"),
        (["bytes"], 2**63, f"bytes of the record is {2**63}, not an integer from 0 to {INT64}"),
        (["dropped"], None, "dropped of the record is None"),
        (["steps"], [], r"steps of the record is \[\], not a list of integers"),
        (["steps"], [6, 7, 7.0], "steps of the record"),
        (["steps"], [6, 7, 2**63], "steps of the record .* 64 bits"),
        (["steps"], [6, 7], "modes of the record is 'tep', not 2 letters of tep"),
        (["modes"], "te", "modes of the record is 'te', not 3 letters of tep"),
        (["modes"], "tex", "modes of the record is 'tex'"),
        (["modes"], "teé", "modes of the record is 'teé'"),
        (["modes"], ["t", "e", "p"], "modes of the record .* not a string"),
        (["microseconds"], [0, 0], "microseconds of the record has 2 integers, not 3"),
        (["time"], "x", "time of the record is 'x', not a finite number"),
        (["time"], float("nan"), "time of the record is nan, not a finite number"),
        (["time"], 1e301, "time of the record"),
        (["columns"], {}, "columns of the record is {}, not a list"),
        (["columns", 0], 3, "the group of columns is 3, not a JSON object"),
        (["tensors", 0], 3, "the group of tensors is 3, not a JSON object"),
        (["aliases", 0], 3, "the group of aliases is 3, not a JSON object"),
        ([*LOSS, "names"], [], r"names of the group of columns is \[\], not a list of strings"),
        ([*LOSS, "names"], [1], "names of the group of columns"),
        ([*STATISTICS, "names"], ["c", "c"], "names of the group of columns .* different"),
        ([*STATISTICS, "reductions"], ["min", "min"], "reductions of the group of col.* different"),
        ([*STATISTICS, "reductions"], "min", "reductions of the group of columns"),
        ([*LOSS, "rows"], [2, 0], "rows of the group of columns .* rows below 3, ascending"),
        ([*LOSS, "rows"], [1, 1], "rows of the group of columns"),
        ([*LOSS, "rows"], [-1, 0], "rows of the group of columns"),
        ([*LOSS, "rows"], [0, 3], "rows of the group of columns"),
        ([*LOSS, "rows"], 0, "rows of the group of columns"),
        ([*LOSS, "crc32c"], "0000000", "crc32c of the group of columns .* 8 hexadecimal digits"),
        ([*LOSS, "crc32c"], "0000000g", "crc32c of the group of columns"),
        ([*LOSS, "crc32c"], "000000000", "crc32c of the group of columns"),
        ([*LOSS, "crc32c"], 8 * " ", "crc32c of the group of columns"),
        ([*LOSS, "crc32c"], 0, "crc32c of the group of columns is 0, not a string"),
        ([*SOME, "crc32c"], "0000000" + 25 * " ", "crc32c of the group of tensors .* 32 hexa"),
        ([*SOME, "crc32c"], 8 * "00 " + 8 * " ", "crc32c of the group of tensors"),
        ([*SOME, "dtype"], "F33", "dtype of the group of tensors is 'F33', not a known dtype"),
        ([*SOME, "dtype"], ["F32"], "dtype of the group of tensors .* not a string"),
        ([*SOME, "names"], ["a", "a"], "names of the group of tensors .* different"),
        ([*SOME, "shapes"], [[1, 2]], "shapes of the group of tensors .* as many shapes as .*name"),
        ([*SOME, "shapes"], {"a": [1, 2], "b": [3]}, "shapes of the group of tensors"),
        ([*SOME, "shapes"], [[1, 2], 3], "shapes of the group of tensors .* a list of shapes"),
        ([*SOME, "shapes"], [[1, 2], [-3]], "shapes of the group of tensors"),
        ([*SOME, "shapes"], [[1, 2], [True]], "shapes of the group of tensors"),
        ([*SOME, "shapes"], [[1, 2], [3.0]], "shapes of the group of tensors"),
        ([*SOME, "shapes"], [[1, 2], 65 * [1]], "shapes of the group of tensors"),
        ([*SOME, "shapes"], [[1, 2], [0, 2**61]], "shapes of the group of tensors"),
        ([*SOME, "rows"], [0, 1, 3], "rows of the group of tensors"),
        ([*ALIAS, "of"], ["a", "a"], "of of the group of aliases .* as many tensors as .* names"),
        ([*ALIAS, "of"], ["c"], "aliases names tensors that are not stored"),
        ([*ALIAS, "rows"], [0, 3], "rows of the group of aliases"),
        (["aliases"], 3, "aliases of the record is 3, not a list"),
    ],
)
def test_an_invalid_value_is_refused(
    document: Any, path: list[str | int], value: Any, complaint: str
) -> None:
    with pytest.raises(CorruptData, match=complaint):
        decoded(changed(document, path, value))


def test_aliases_must_be_different(document: Any) -> None:
    document["aliases"][0] |= {"names": ["d", "d"], "of": ["a", "b"]}
    with pytest.raises(CorruptData, match=r"names of the group of aliases .* different"):
        decoded(document)


@pytest.mark.parametrize(
    "path",
    [
        *(["format"], ["rank"], ["seq"], ["bytes"], ["modes"], ["steps"], ["time"], ["dropped"]),
        *(["microseconds"], ["columns"], ["tensors"]),
        *([*LOSS, key] for key in ("names", "reductions", "rows", "offset", "crc32c")),
        *([*SOME, key] for key in ("dtype", "names", "shapes", "rows", "offset", "crc32c")),
        *([*ALIAS, key] for key in ("names", "of", "rows")),
    ],
)
def test_a_missing_key_is_named(document: Any, path: list[str | int]) -> None:
    *parents, key = path
    node = document
    for parent in parents:
        node = node[parent]
    del node[key]
    kind = f"group of {parents[0]}" if parents else "record"
    with pytest.raises(CorruptData, match=f"^the {kind} has no {key}$"):
        decoded(document)


@pytest.mark.parametrize("value", [[], "record", None, 3])
def test_a_record_is_an_object(value: Any) -> None:
    with pytest.raises(CorruptData, match=r"the record is .* not a JSON object"):
        decoded(value)


@pytest.mark.parametrize(
    ("group", "length"), [(LOSS, 16), (STATISTICS, 16), (SOME, 40), (WHOLE, 12)]
)
def test_data_ends_within_the_file(document: Any, group: tuple[str, int], length: int) -> None:
    last = document["bytes"] - length
    decoded(changed(document, [*group, "offset"], last))
    with pytest.raises(CorruptData, match=f"offset of the group .* {length} bytes before the end"):
        decoded(changed(document, [*group, "offset"], last + 1))


@pytest.mark.parametrize("shape", [64 * [1], [0, 2**60], [0], []])
def test_the_largest_shapes_of_numpy_are_accepted(document: Any, shape: list[int]) -> None:
    document["tensors"][0] |= {"shapes": [[1, 2], shape], "offset": 0}
    found = decoded(document).tensors[0].layout
    assert found.shapes == ((1, 2), tuple(shape))
    np.empty((0, *found.shapes[1][1:]), np.float32)


def test_the_limits_of_numbers_are_accepted(document: Any) -> None:
    document |= {"bytes": INT64, "dropped": INT64, "time": -1e300, "steps": [0, INT64, -(2**63)]}
    record = decoded(document)
    assert (record.size, record.dropped) == (INT64, INT64)
    assert record.rows.steps.tolist() == [0, INT64, -(2**63)]
    assert record.rows.times.tolist() == [-1e300] * 3


def test_times_are_the_first_plus_microseconds(document: Any) -> None:
    document |= {"time": 5, "microseconds": [0, 250_000, -1_000_000]}
    times = decoded(document).rows.times
    assert times.dtype == np.float64
    assert times.tolist() == [5.0, 5.25, 4.0]


def test_equal_layouts_are_shared(document: Any) -> None:
    pool = LayoutPool()
    first, second = (decode_record(sealed(document), pool, RANK, SEQ) for _ in range(2))
    for kind in ("columns", "tensors", "aliases"):
        for one, other in zip(getattr(first, kind), getattr(second, kind), strict=True):
            assert one.layout is other.layout
