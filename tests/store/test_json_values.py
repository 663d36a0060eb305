"""Checking JSON values against annotated types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from vinedresser.store.json_values import checker, known_fields, strict_json


@pytest.mark.parametrize(
    ("hint", "fitting", "others"),
    [
        (int, [0, -1], [True, 1.0, "1", None]),
        (float, [0, 1.5, float("nan")], [False, "1.5", None]),
        (str, ["", "a"], [b"a", 1]),
        (bool, [True], [1]),
        (Any, [None, [], {}], []),
        (int | None, [1, None], ["1", True]),
        (Literal["a", "b"], ["a"], ["c", 1, []]),
        (list[int], [[], [1]], [(1,), [1.0], [True], ["1"], None]),
        (list[float], [[1, 2.5]], [[True], ["1"]]),
        (list[list[int]], [[], [[1], []]], [[1], [["1"]]]),
        (dict[str, float], [{}, {"a": 1}], [{"a": "1"}, [], {"a": True}]),
        (dict[str, dict[str, Any]], [{"a": {"b": []}}], [{"a": []}]),
    ],
)
def test_values_fit_their_type(hint: Any, fitting: list[Any], others: list[Any]) -> None:
    fits = checker(hint)
    assert all(fits(value) for value in fitting)
    assert not any(fits(value) for value in others)


@dataclass
class Sample:
    name: str
    values: list[float] = field(default_factory=list)


def test_unknown_keys_are_ignored() -> None:
    assert known_fields(Sample, {"name": "a", "new": 1}) == {"name": "a"}


def test_the_error_names_the_field_and_the_value() -> None:
    with pytest.raises(TypeError, match=r"values is \['x'\], which is not list"):
        known_fields(Sample, {"name": "a", "values": ["x"]})
    with pytest.raises(TypeError, match=r"\[\] is not a JSON object"):
        known_fields(Sample, [])


def test_numbers_that_json_lacks_become_strings() -> None:
    value = {"a": [float("nan"), float("inf"), 1.5], "b": (float("-inf"), "x")}
    assert strict_json(value) == {"a": ["nan", "inf", 1.5], "b": ["-inf", "x"]}
