"""Tar shards as webdataset writes them: neighbouring files with the same key are one record.

The key is the path up to the first dot of the file's name, the rest of the name is the field:
``images/7.jpg`` and ``images/7.json`` are the fields ``jpg`` and ``json`` of ``images/7``
(https://github.com/webdataset/webdataset, "The WebDataset Format").
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vinedresser.data.formats.base import Defect, Entry
from vinedresser.data.formats.compression import is_compressed

_BLOCK = tarfile.BLOCKSIZE
_NOTHING = bytes(_BLOCK)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_NO_FILE = "an extended header is without its file"
_ABOUT_THE_NEXT = (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_WITHOUT_CONTENT = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
_PAX_FIELD = re.compile(rb"(\d+) ([^=]+)=")
# Files without a dot, or whose name begins with one, belong to no record.
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]*)", re.DOTALL)


class _Member(NamedTuple):
    """A file of an archive; its bytes, headers included, are from start to end."""

    key: str
    field: str
    start: int
    content: int
    size: int
    end: int


class TarFraming:
    """See `Framing`; the values are mappings of fields to `bytes`, and ``__key__`` to the key."""

    name = "a tar archive"
    has_checksums = False

    def is_compressed(self, head: bytes) -> bool:
        """See `Framing.is_compressed`; a name may begin like compressed data."""
        if len(head) < _BLOCK:
            return is_compressed(head)
        return is_compressed(head) and bool(self.boundaries(head, final=False)[1])

    def boundaries(self, content: bytes, *, final: bool) -> tuple[list[int], str]:
        """See `Framing.boundaries`; a file with another key begins the next record."""
        found = [0]
        begun = False
        key = ""
        end = 0
        try:
            for member in _members(content, final=final):
                if begun and member.key != key:
                    found.append(member.start)
                begun, key, end = True, member.key, member.end
        except ValueError as error:
            # More files of the last record may have followed: it is not complete.
            return found, str(error)
        if final and begun:
            found.append(end)
        return found, ""

    def values(self, entries: Sequence[Entry]) -> tuple[list[Any], list[Defect]]:
        """See `Framing.values`; tar has checksums of headers only, and they are verified."""
        values: list[Any] = []
        defects: list[Defect] = []
        for index, (content, begin, end) in enumerate(entries):
            record = content[begin:end]
            value: dict[str, Any] = {}
            for member in _members(record, final=True):
                if member.field in value:
                    defects.append(Defect(index, f"the field {member.field} is in it twice"))
                value["__key__"] = member.key
                value[member.field] = record[member.content : member.content + member.size]
            values.append(value)
        return values, defects


def _members(content: bytes, *, final: bool) -> Iterator[_Member]:
    """Yield the complete files of an archive whose names have a key and a field."""
    start = position = 0
    name = ""
    while position + _BLOCK <= len(content):
        block = content[position : position + _BLOCK]
        if block == _NOTHING:
            _check_end(content[position:] if final else block, complete=start == position)
            return
        info = _header(block)
        begin = position + _BLOCK
        # Links, folders and devices have no content, whatever their size says.
        size = 0 if info.type in _WITHOUT_CONTENT else info.size
        position = begin + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        if position > len(content):
            break
        named = _name_in(content[begin : begin + info.size], info.type)
        if name and (named or info.type == tarfile.XGLTYPE):
            raise ValueError(_NO_FILE)
        if info.type in _ABOUT_THE_NEXT:
            if any(content[begin + size : position]):
                raise ValueError("an extended header is longer than it says")
            name = named or name
            continue
        if split := info.isreg() and _NAME.fullmatch(name or info.name):
            yield _Member(split[1], split[2].lower(), start, begin, info.size, position)
        name, start = "", position
    if final and start < len(content):
        raise ValueError("it is cut off")


def _check_end(rest: bytes, *, complete: bool) -> None:
    """Check what is behind the last file of an archive, from the first empty block on."""
    if not complete:
        raise ValueError(_NO_FILE)
    if rest.count(0) < len(rest):
        raise ValueError("there is more behind its end")


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ValueError(f"the header of a file is damaged: {error}") from error
    if info.size < 0:
        raise ValueError(f"the header of {info.name} has the size {info.size}")
    if info.type == tarfile.GNUTYPE_SPARSE:
        raise ValueError(f"{info.name} is a sparse file, which is not supported")
    return info


def _name_in(header: bytes, kind: bytes) -> str:
    """Return the name of the next file that a header before it has, "" if it has none."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        name = header.rstrip(b"\0")
        if not name or 0 in name:
            raise ValueError("an extended header is damaged")
        return name.decode("utf-8", "surrogateescape")
    if kind == tarfile.XGLTYPE and _pax_path(header):
        raise ValueError("a header that names all files, which is not supported")
    return _pax_path(header) if kind in _PAX else ""


def _pax_path(header: bytes) -> str:
    """Return the path in an extended header, "" if it has none."""
    position = 0
    path = ""
    while field := _PAX_FIELD.match(header, position):
        end = position + int(field[1])
        if end <= field.end() or header[end - 1 : end] != b"\n":
            raise ValueError("an extended header is damaged")
        value = header[field.end() : end - 1]
        if field[2] == b"path":
            path = value.decode("utf-8", "surrogateescape")
        elif field[2] == b"size":
            raise ValueError("a file of more than 8 GiB, which is not supported")
        position = end
    if header[position:].strip(b"\0"):
        raise ValueError("an extended header is damaged")
    return path
