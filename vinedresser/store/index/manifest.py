"""Manifests: copies of a hundred index records in one object.

They reduce the requests to open a run of a hundred thousand small segments to a thousand; the
layouts that the records share are stored once per manifest.

    {"crc32c":"xxxxxxxx","manifest":{"format":1,"rank":0,"first":300,
     "layouts":[{"names":["losses/loss"],"reductions":null},
                {"dtype":"F32","names":["weights/a","weights/b"],"shapes":[[3,2],[3]]}],
     "records":[{"bytes":8392704,...,
                 "columns":[{"layout":0,"rows":null,"offset":1024,"crc32c":"xxxxxxxx"}],
                 "tensors":[{"layout":1,"rows":null,"offset":1048,"crc32c":"xxxxxxxx..."}]},...]}}

A manifest commits nothing: it is a copy, written after the last of its records. It is omitted if
the records are so large that reading them one by one costs no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from vinedresser.errors import CorruptData
from vinedresser.store.index.codec import (
    Layout,
    Layouts,
    body_document,
    body_of,
    check_format,
    layout_document,
    layouts_in,
)
from vinedresser.store.index.document import Document, seal, to_json, unseal
from vinedresser.store.index.index_record import FORMAT, IndexRecord
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, LayoutPool

__all__ = ["SPAN", "ManifestBuilder", "decode_manifest"]

L = TypeVar("L", bound=Layout)

# Index records in a manifest.
SPAN = 100
# Total length of its records above which it is omitted, in characters.
_MOST = 1 << 20


class ManifestBuilder:
    """Collects the records of one rank, from the first, into manifests."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._begin()

    def add(self, record: IndexRecord) -> bytes | None:
        """Add the next record; return the manifest to store if the record completes one."""
        if record.seq % SPAN == 0:
            self._begin()
        if self._size > _MOST:
            return None
        self._records.append(to_json(body_document(record, self._describe)))
        self._size += len(self._records[-1])
        if self._size > _MOST:
            self.omit()
            return None
        return self._encode(record.seq - SPAN + 1) if record.seq % SPAN == SPAN - 1 else None

    def omit(self) -> None:
        """Omit the current manifest; the next one begins as usual."""
        self._size = _MOST + 1
        self._records.clear()
        self._layouts.clear()

    def _begin(self) -> None:
        self._pool = LayoutPool()
        self._numbers: dict[Layout, int] = {}
        self._layouts: list[str] = []
        self._records: list[str] = []
        self._size = 0

    def _describe(self, layout: Layout) -> dict[str, Any]:
        """Return the JSON that identifies a layout; a new layout is added."""
        layout = _pooled(self._pool, layout)
        if layout not in self._numbers:
            self._numbers[layout] = len(self._numbers)
            self._layouts.append(to_json(layout_document(layout)))
            self._size += len(self._layouts[-1])
        return {"layout": self._numbers[layout]}

    def _encode(self, first: int) -> bytes:
        content = (
            f'{{"format":{FORMAT},"rank":{self._rank},"first":{first},'
            f'"layouts":[{",".join(self._layouts)}],"records":[{",".join(self._records)}]}}'
        )
        return seal("manifest", content.encode())


def decode_manifest(content: bytes, pool: LayoutPool, rank: int, number: int) -> list[IndexRecord]:
    """Decode a manifest.

    Args:
        content: the stored bytes.
        pool: shares equal layouts.
        rank: expected rank.
        number: expected number, from 0.

    Returns:
        Its `SPAN` records.

    Raises:
        CorruptData: it is not this manifest, or not a manifest; the message does not name its key.
    """
    document = Document(unseal("manifest", content), "manifest")
    check_format(document)
    first = number * SPAN
    found = document.integer("rank"), document.integer("first")
    if found != (rank, first):
        raise CorruptData(f"it is the manifest of rank {found[0]} from segment {found[1]} on")
    layouts = _numbered(list(document.objects("layouts", "layout")), layouts_in(pool))
    bodies = list(document.objects("records", "record"))
    if len(bodies) != SPAN:
        raise CorruptData(f"the manifest has {len(bodies)} records, not {SPAN}")
    return [body_of(body, layouts, rank, first + place) for place, body in enumerate(bodies)]


def _numbered(documents: list[Document], read: Layouts) -> Layouts:
    """Return functions that return the layouts that groups refer to by number."""

    def by_number(read_one: Callable[[Document], L]) -> Callable[[Document], L]:
        known: dict[int, L] = {}

        def find(group: Document) -> L:
            number = group.integer("layout", len(documents) - 1)
            if number not in known:
                known[number] = read_one(documents[number])
            return known[number]

        return find

    return Layouts(by_number(read.columns), by_number(read.tensors), by_number(read.aliases))


def _pooled(pool: LayoutPool, layout: Layout) -> Layout:
    """Return the shared layout with the same contents."""
    if isinstance(layout, ColumnLayout):
        return pool.columns(layout.names, layout.reductions)
    if isinstance(layout, AliasLayout):
        return pool.aliases(layout.names, layout.targets)
    return pool.tensors(layout.dtype, layout.names, layout.shapes)
