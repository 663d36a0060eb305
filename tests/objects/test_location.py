"""Locations: one type for directories and for URLs of object stores."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from vinedresser.objects import Location, StoreUrl, is_remote, parse_location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs", Path("runs")),
        ("/data/runs/", Path("/data/runs")),
        ("s3://bucket/runs", StoreUrl("s3://bucket/runs")),
        ("s3://bucket/runs//", StoreUrl("s3://bucket/runs")),
        ("s3://bucket", StoreUrl("s3://bucket")),
        ("s3://", StoreUrl("s3://")),
    ],
)
def test_a_string_is_parsed_as_a_path_or_a_url(text: str, expected: Location) -> None:
    found = parse_location(text)
    assert found == expected
    assert type(found) is type(expected)
    assert is_remote(found) is isinstance(expected, StoreUrl)


def test_a_location_stays_as_it_is() -> None:
    for location in (Path("runs"), StoreUrl("s3://bucket/runs")):
        assert parse_location(location) == location


@pytest.mark.parametrize("store", ["/data/runs", "s3://bucket/runs"])
def test_both_kinds_join_and_split_the_same_way(store: str) -> None:
    location = parse_location(store) / "first"
    assert str(location) == f"{store}/first"
    assert location.name == "first"
    assert location.parent == parse_location(store)


def test_a_url_is_a_string_wherever_it_goes() -> None:
    url = StoreUrl("s3://bucket/runs/")
    assert url == "s3://bucket/runs"
    assert f"{url}" == "s3://bucket/runs"
    assert json.loads(json.dumps({"url": url})) == {"url": "s3://bucket/runs"}
    copied = pickle.loads(pickle.dumps(url))
    assert copied == url
    assert copied / "first" == "s3://bucket/runs/first"
