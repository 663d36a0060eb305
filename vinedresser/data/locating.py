"""A single record, found by the place that messages name: its object and byte, or its number."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NamedTuple

from vinedresser.data.formats.base import Chunk
from vinedresser.data.formats.registry import format_of, open_format
from vinedresser.data.index import make_index
from vinedresser.data.records import Origin
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError

__all__ = ["Found", "find_record"]

_PLACE = re.compile(r"(?P<uri>.+)(?P<sign>[:#])(?P<number>\d{1,18})", re.DOTALL)


class Found(NamedTuple):
    """A record.

    Attributes:
        origin: where it is.
        value: its value; of a damaged record the bytes that are there, if they can be told.
        damage: what is wrong with it, "" if nothing is.
    """

    origin: Origin
    value: Any
    damage: str


def find_record(place: str, *, format: str | None = None) -> Found:  # noqa: A002 (as in `Dataset`)
    """Return one record.

    Args:
        place: ``URI:OFFSET`` for the record at, or around, a byte offset, as in messages; or
            ``URI#RECORD`` for the number of a record in its object, from 0.
        format: see `Dataset`.

    Raises:
        ConfigError: the place has another form, or there is no such record.
        DamagedData: the object has another format.
        StoreError: it cannot be read.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise ConfigError(
            f"{place}: must be URI:OFFSET or URI#RECORD, such as s3://bucket/a.tfrecord:561"
        )
    uri, number, by_offset = match["uri"], int(match["number"]), match["sign"] == ":"
    objects = find_objects(uri)
    if len(objects) > 1:
        raise ConfigError(f"{uri}: has {len(objects)} objects; name one of them")
    kind = format_of(objects, format)
    if by_offset and kind == "parquet":
        raise ConfigError(f"{place}: rows of Parquet have no byte of their own; use {uri}#RECORD")
    opened = open_format(kind)
    marks = make_index(objects, kind, opened).marks[0]
    if marks.flaw is not None and number >= (marks.flaw.offset if by_offset else marks.flaw.record):
        return Found(Origin(uri, *marks.flaw[:2]), None, marks.flaw.reason)
    missing = ConfigError(
        f"{place}: there is no such record; the object has {marks.numbers[-1]} records"
    )
    ends = marks.offsets if by_offset else marks.numbers
    at = bisect_right(ends, number) - 1
    # Offsets of a compressed object are those of its content, and it is one chunk.
    packed = by_offset and len(ends) == 2
    if packed:
        at = 0
    if not 0 <= at < len(ends) - 1:
        raise missing
    first, records = marks.numbers[at], marks.numbers[at + 1] - marks.numbers[at]
    chunk = Chunk(0, first, records, marks.offsets[at], marks.offsets[at + 1])
    found = opened.records(opened.load(objects[0], chunk), chunk)
    index = bisect_right(found.offsets.tolist(), number) - 1 if by_offset else number - first
    origin = Origin(uri, int(found.offsets[index]), first + index)
    if index < 0 or (packed and index == records - 1 and number > origin.offset):
        raise missing
    damage = next((flaw.reason for flaw in found.flaws if flaw.record == origin.record), "")
    if damage:
        return Found(origin, None, damage)
    (value,), defects = opened.values([found.entries()[index]])
    return Found(origin, value, defects[0].reason if defects else "")
