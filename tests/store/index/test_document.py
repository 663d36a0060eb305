"""Values of untrusted JSON are returned with the requested type and range, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastcrc import crc32

from vinedresser.errors import CorruptData
from vinedresser.store.index.document import Document, unseal

Read = Callable[[Document], Any]


def document(value: Any) -> Document:
    return Document({"key": value}, "record")


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (lambda one: one.integer("key"), [0, 1, 2**63 - 1]),
        (lambda one: one.integer("key", 3), [0, 3]),
        (lambda one: one.number("key"), [0, -1, 2.5, 1e300, -1e300]),
        (lambda one: one.text("key"), ["", "text"]),
        (lambda one: one.take("key"), [None, False, "x", [1]]),
    ],
)
def test_valid_values_are_returned(read: Read, values: list[Any]) -> None:
    for value in values:
        assert read(document(value)) == value


@pytest.mark.parametrize(
    ("read", "wanted", "values"),
    [
        (
            lambda one: one.integer("key", 3),
            "an integer from 0 to 3",
            [4, -1, True, 1.0, "1", None],
        ),
        (lambda one: one.integer("key"), f"an integer from 0 to {2**63 - 1}", [2**63, -1]),
        (
            lambda one: one.number("key"),
            "a finite number",
            [1.1e300, -1.1e300, float("nan"), float("inf"), True, "1", None],
        ),
        (lambda one: one.text("key"), "a string", [None, 1, ["x"], b"x"]),
        (lambda one: one.texts("key"), "a list of strings", [[], ["x", 1], "x", None, ("x",)]),
        (
            lambda one: one.integers("key"),
            "a list of integers of 64 bits",
            [[], [1, 2.0], [True], 1, None, [2**63], [2**64], [-(2**63) - 1]],
        ),
        (lambda one: one.objects("key", "group"), "a list", [{}, None, "x"]),
    ],
)
def test_an_invalid_value_is_named_with_a_valid_one(
    read: Read, wanted: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises(CorruptData) as caught:
            read(document(value))
        assert str(caught.value) == f"key of the record is {value!r}, not {wanted}"


def test_lists_are_returned_in_order() -> None:
    assert document(["b", "a", "b"]).texts("key") == ("b", "a", "b")
    found = document([3, -(2**63), 2**63 - 1]).integers("key")
    assert found.dtype == np.int64
    assert found.tolist() == [3, -(2**63), 2**63 - 1]
    assert document([1, 2]).integers("key", 2).tolist() == [1, 2]
    with pytest.raises(CorruptData, match="key of the record has 2 integers, not 3"):
        document([1, 2]).integers("key", 3)
    objects = document([{"a": 1}, {"a": 2}]).objects("key", "group")
    assert [one.integer("a") for one in objects] == [1, 2]


def test_objects_have_a_description_of_their_own() -> None:
    (found,) = document([{"a": "x"}]).objects("key", "group of tensors")
    with pytest.raises(CorruptData, match="a of the group of tensors is 'x'"):
        found.integer("a")
    with pytest.raises(CorruptData, match="the group of tensors is 3, not a JSON object"):
        list(document([3]).objects("key", "group of tensors"))


def test_a_missing_key_is_named() -> None:
    found = document(1)
    assert "key" in found
    assert "other" not in found
    for read in (found.take, found.integer, found.number, found.text, found.texts, found.integers):
        with pytest.raises(CorruptData, match=r"^the record has no other$"):
            read("other")


def test_long_values_are_abbreviated() -> None:
    with pytest.raises(CorruptData) as caught:
        document("x" * 10_000).integer("key")
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000])
def test_sealed_content_that_is_not_json_is_named(content: bytes) -> None:
    sealed = b'{"crc32c":"%08x","record":%s}' % (crc32.iscsi(content), content)
    with pytest.raises(CorruptData, match="record is not JSON"):
        unseal("record", sealed)
