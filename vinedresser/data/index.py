"""The index of a data set: how many records each object has, and where reading can begin.

`vinedresser.data.write` puts it beside the data. Otherwise it is made by reading each object once,
only its header or footer where the format has one, and kept in the user's cache until the object
changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from vinedresser.data.formats.base import Flaw, Format, Marks
from vinedresser.data.sources.base import DataObject
from vinedresser.data.sources.cached import cache_folder
from vinedresser.errors import ConfigError, StoreError
from vinedresser.objects import LocalStorage, Storage, open_storage
from vinedresser.objects.base import get_or_none

__all__ = ["Index", "index_name", "make_index"]

# Changes whenever older entries must not be used.
_VERSION = 1
_CONCURRENT = 8


class Index(NamedTuple):
    """The objects of a data set and their marks."""

    objects: list[DataObject]
    marks: list[Marks]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(marks.numbers[-1] for marks in self.marks)

    @property
    def digest(self) -> str:
        """Identifies the objects by name, size and number of records, wherever they are kept."""
        described = [
            (found.uri, found.size, marks.numbers[-1])
            for found, marks in zip(self.objects, self.marks, strict=True)
        ]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def make_index(objects: Sequence[DataObject], kind: str, opened: Format) -> Index:
    """Return the index of objects, from the cache where it is known.

    Args:
        kind: name of their format.

    Raises:
        ConfigError: they have no records.
        DamagedData: an object is of another kind.
        StoreError: an object cannot be read.
    """
    cache = _cache()

    def marks_of(found: DataObject) -> Marks:
        if kind in ("files", "augmented"):
            # There may be a million, and nothing is read for it.
            return opened.marks(found)
        name = f"{_VERSION} {kind} {found.version} {found.uri}"
        key = f"{hashlib.sha256(name.encode()).hexdigest()}.json"
        known = _marks(_read(cache, key))
        if known is None:
            known = _beside(found, kind) or opened.marks(found)
            _write(cache, key, known)
        # Lists of numbers would take five times the memory.
        return known._replace(offsets=array("q", known.offsets), numbers=array("q", known.numbers))

    with ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="index") as pool:
        index = Index(list(objects), [*pool.map(marks_of, objects)])
    if not index.records and not any(marks.flaw for marks in index.marks):
        more = f" and {len(objects) - 1} more have" if len(objects) > 1 else " has"
        raise ConfigError(f"{objects[0].uri}{more} no records")
    return index


def _cache() -> LocalStorage:
    return LocalStorage(cache_folder())


def index_name(name: str) -> str:
    """Return the name of the index of a file beside it, which readers of the folder leave out."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}_{file}.json"


def _beside(found: DataObject, kind: str) -> Marks | None:
    """Return the marks that `vinedresser.data.write` put beside an object; None if there are none.

    If the storage refuses, too: S3 answers so for what is missing, unless objects may be listed.
    """
    if kind != "tfrecord":
        return None
    folder, _, file = index_name(found.uri).rpartition("/")
    known = _read(open_storage(folder or os.curdir), file)
    marks = _marks(known)
    # Of a file of this size that is an other one, the records' checksums tell.
    return marks if marks is not None and known.get("size") == found.size else None


def _read(storage: Storage, key: str) -> Any:
    """Return an entry of the cache, or an index; None if it is missing or damaged."""
    try:
        return _parsed(get_or_none(storage, key))
    except StoreError:
        return None


def _parsed(content: bytes | None) -> Any:
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


def _marks(known: Any) -> Marks | None:
    match known:
        case {
            "offsets": [*offsets],
            "numbers": [*numbers],
            "flaw": None | [int(), int(), str()] as flaw,
        }:
            same = len(offsets) == len(numbers) > 0
            if same and all(_is_place(one) for one in (*offsets, *numbers)):
                return Marks(offsets, numbers, None if flaw is None else Flaw(*flaw))
    return None


def _is_place(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < 1 << 63


def _write(cache: LocalStorage, key: str, marks: Marks) -> None:
    """Keep an entry, unless the cache cannot be written to: then it is made again."""
    try:
        cache.put(key, [json.dumps(marks._asdict()).encode()])
    except StoreError:
        return
