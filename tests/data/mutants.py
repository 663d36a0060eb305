"""Mutated files by the thousand: what is delivered of each is compared with slow readers.

A mutation is one of those of a disk or a network (bits, bytes, ranges lost, doubled or swapped, cut
off), or of the format's own fields (lengths, headers, checksums that are made to match, encodings).
Everything is a pure function of the number of the mutant.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import struct
import tarfile
import tokenize
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tests.data import written
from vinedresser.data.formats.base import Chunk, Flaw
from vinedresser.data.formats.registry import open_format
from vinedresser.errors import DamagedData

# Records of a file, and files that are mutated.
_RECORDS = 6
_FILES = 97
Found = list[tuple[int, Any]]


@dataclass(frozen=True)
class InMemory:
    """See `DataObject`."""

    content: bytes
    uri: str = "mutant"
    version: str = ""

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, stop: int) -> bytes:
        assert 0 <= start <= stop <= self.size
        return self.content[start:stop]


class Reference(NamedTuple):
    """What a slow reader finds.

    Attributes:
        records: offsets and values, up to the first damage behind which it finds none.
        sound: nothing is damaged.
    """

    records: Found
    sound: bool


def delivered(kind: str, content: bytes) -> tuple[Found, list[Flaw]]:
    """Return the records that a data set would deliver, and the damage."""
    opened = open_format(kind)
    found = InMemory(content)
    try:
        marks = opened.marks(found)
        flaws = [] if marks.flaw is None else [marks.flaw]
        count = marks.numbers[-1]
        if not count:
            return [], flaws
        chunk = Chunk(0, 0, count, marks.offsets[0], marks.offsets[-1])
        records = opened.records(opened.load(found, chunk), chunk)
    except DamagedData as error:
        return [], [Flaw(error.offset, error.record, error.reason)]
    lost = {flaw.record for flaw in records.flaws}
    entries = [entry for at, entry in enumerate(records.entries()) if at not in lost]
    values, defects = opened.values(entries)
    offsets = [offset for at, offset in enumerate(records.offsets.tolist()) if at not in lost]
    assert len(values) == len(offsets) == count - len(lost)
    damaged = {defect.place for defect in defects}
    flaws += [Flaw(offsets[one.place], one.place, one.reason) for one in defects]
    pairs = zip(offsets, values, strict=True)
    return [one for at, one in enumerate(pairs) if at not in damaged], flaws + records.flaws


# --- Mutations of any bytes --------------------------------------------------------------------


def disturbed(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with one accident of a disk or a network."""
    place, other = chance.randrange(len(content)), chance.randrange(len(content))
    length = chance.choice((1, 2, 7, 30, 512))
    piece = content[other : other + length]
    flipped = bytes([content[place] ^ 1 << chance.randrange(8)])
    new, continues = chance.choice(
        (
            (b"", len(content)),
            (b"", place + length),
            (chance.randbytes(length), place),
            (content[place : place + length], place),
            (bytes(length), place + length),
            (piece, place + len(piece)),
            (flipped, place + 1),
            (flipped, place + 1),
        )
    )
    return content[:place] + new + content[continues:]


def _replaced(content: bytes, start: int, new: bytes) -> bytes:
    return content[:start] + new + content[start + len(new) :]


def _number(chance: random.Random, near: int) -> int:
    """Return a number that may be stored in a length of 64 bits."""
    edges = (0, 1, 11, 2**31 - 1, 2**32 - 1, 2**40, 2**63, 2**64 - 1, 2**64 - 16)
    return max(chance.choice((*edges, near - 1, near + 1, near + 16, chance.randrange(300))), 0)


# --- TFRecord ----------------------------------------------------------------------------------


def _tfrecord(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(written.tfrecord, records)
    if chance.random() < 0.5:
        return disturbed(content, chance)
    begins = [0]
    for record in records:
        begins.append(begins[-1] + len(record) + 16)
    one, other = chance.randrange(len(records)), chance.randrange(len(records))
    start, end = begins[one], begins[one + 1]
    length = struct.pack("<Q", _number(chance, len(records[one])))
    match chance.randrange(5):
        case 0:
            # A length that is wrong, but not by its checksum.
            return _replaced(content, start, length + written.masked(length))
        case 1:
            return _replaced(content, start, length)
        case 2:
            header = content[begins[other] : begins[other] + 12]
            return _replaced(content, start, header)
        case 3:
            checksum = content[begins[other + 1] - 4 : begins[other + 1]]
            return _replaced(content, end - 4, checksum)
    # One record in place of another: that is seen by nobody, and no wrong record.
    return content[:start] + content[begins[other] : begins[other + 1]] + content[end:]


def _read_tfrecord(content: bytes) -> Reference:
    records: Found = []
    position = 0
    sound = True
    while position < len(content):
        header = content[position : position + 12]
        if len(header) < 12 or written.masked(header[:8]) != header[8:]:
            return Reference(records, sound=False)
        (length,) = struct.unpack("<Q", header[:8])
        end = position + 16 + length
        if end > len(content):
            return Reference(records, sound=False)
        value = content[position + 12 : end - 4]
        if written.masked(value) == content[end - 4 : end]:
            records.append((position, value))
        else:
            sound = False
        position = end
    return Reference(records, sound)


# --- Length-prefixed records -------------------------------------------------------------------


def _length_prefixed(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(written.length_prefixed, records)
    if chance.random() < 0.5:
        return disturbed(content, chance)
    one = chance.randrange(len(records))
    start = sum(len(record) + 4 for record in records[:one])
    length = _number(chance, len(records[one])) & 0xFFFFFFFF
    return _replaced(content, start, struct.pack("<I", length))


def _read_length_prefixed(content: bytes) -> Reference:
    records: Found = []
    position = 0
    while position < len(content):
        if position + 4 > len(content):
            return Reference(records, sound=False)
        (length,) = struct.unpack_from("<I", content, position)
        end = position + 4 + length
        if end > len(content):
            return Reference(records, sound=False)
        records.append((position, content[position + 4 : end]))
        position = end
    return Reference(records, sound=True)


# --- JSON lines --------------------------------------------------------------------------------

_LINES = (
    b"",
    b" \t ",
    b"[" * 3000,
    b"[" * 200_000 + b"]" * 200_000,
    b"1" * 5000,
    b"NaN",
    b"1\x00",
    b"\x001",
    b"\x00\x00\x001",
    b"\xff\xfe1\x00",
    b"\xef\xbb\xbf1",
    b'"\xed\xa0\x80"',
    b'"\xc3"',
    b'"a\x00b"',
    b'"\\ud800"',
    b'{"hex": "00"}{"hex": "00"}',
    '{"hex": "00"}'.encode("utf-16-le"),
    "\u2028".encode(),
    b"\x0c1",
    b"\x1c1",
)


def _json_lines(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(written.json_lines, records)
    if chance.random() < 0.6:
        return disturbed(content, chance)
    lines = content.split(b"\n")
    one = chance.randrange(len(records))
    # The deepest line costs a hundred times as much as the others.
    line = chance.choice(_LINES[:3] + _LINES[4:] if chance.random() < 0.99 else _LINES)
    match chance.randrange(3):
        case 0:
            lines[one] = line
        case 1:
            place = chance.randrange(len(lines[one]))
            lines[one] = lines[one][:place] + line + lines[one][place:]
        case 2:
            ending = chance.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b" ", b""))
            return ending.join(lines[: one + 1]) + b"\n" + b"\n".join(lines[one + 1 :])
    return b"\n".join(lines)


def _read_json_lines(content: bytes) -> Reference:
    records: Found = []
    sound = True
    position = 0
    blank = True
    for line in content.split(b"\n"):
        text = line.lstrip(b" \t\r")
        if text:
            # What is blank before the first record belongs to it.
            offset = 0 if blank else position + len(line) - len(text)
            blank = False
            try:
                records.append((offset, json.loads(line.decode("utf-8-sig"))))
            except (ValueError, RecursionError):
                sound = False
        position += len(line) + 1
    return Reference(records, sound)


# --- tar ---------------------------------------------------------------------------------------


def _gnu_tar(records: Sequence[bytes]) -> bytes:
    return written.tar(records, kind=tarfile.GNU_FORMAT)


_SIZES = (
    b"\xff" * 12,
    b"\xff" * 10 + b"\xf0\0",
    b"\x80" + b"\xff" * 11,
    b"\x80" + bytes(3) + b"\x7f" * 8,
    b"77777777777\0",
    b"00000000000\0",
    b"00000001000\0",
    b"-0000000001\0",
    b"00000 00001\0",
    b"            ",
    b"0000000000x\0",
)


def _tar(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(chance.choice((written.tar, _gnu_tar)), records)
    if chance.random() < 0.4:
        return disturbed(content, chance)
    starts = [at for at in range(0, len(content), 512) if content[at + 257 : at + 262] == b"ustar"]
    start = chance.choice(starts)
    match chance.randrange(6):
        case 0:
            content = _replaced(content, start + 124, chance.choice(_SIZES))
        case 1:
            kind = bytes([chance.choice(b"0123456789xgXLKSV\0")])
            content = _replaced(content, start + 156, kind)
        case 2:
            content = _replaced(content, start, chance.randbytes(chance.randrange(1, 100)))
        case 3:
            place = start + chance.randrange(512)
            content = _replaced(content, place, chance.randbytes(1))
        case 4:
            # What follows a header may be an extended one.
            place = min(start + 512 + chance.randrange(30), len(content) - 1)
            content = _replaced(content, place, bytes([chance.choice(b"0123456789 =\n\0\xff")]))
        case 5:
            end = min(start + 512 * chance.randrange(1, 4), len(content))
            content = content[:start] + content[end:]
    if chance.random() < 0.8 and len(content) >= start + 512:
        block = _replaced(content[start : start + 512], 148, b" " * 8)
        content = _replaced(content, start + 148, b"%06o\0 " % sum(block))
    return content


def _read_tar(content: bytes) -> Reference:
    members: list[tuple[str, str, bytes]] = []
    sound = True
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                folder, _, name = member.name.rpartition("/")
                key, dot, field = name.partition(".")
                if file is not None and key and dot:
                    path = f"{folder}/{key}" if "/" in member.name else key
                    members.append((path, field.lower(), file.read()))
            end = archive.offset
            sound = not any(content[end : end + 512])
    except (tarfile.TarError, ValueError, OSError, IndexError, OverflowError, EOFError):
        sound = False
    records: list[dict[str, Any]] = []
    for key, field, value in members:
        if not records or records[-1]["__key__"] != key:
            records.append({"__key__": key})
        records[-1][field] = value
    return Reference([(-1, record) for record in records], sound)


# --- Arrays ------------------------------------------------------------------------------------


def _header_changed(content: bytes, start: int, stop: int, chance: random.Random) -> bytes:
    """Return a file whose header has another digit or letter, or a word in it more or less."""
    place = chance.randrange(start, stop)
    match chance.randrange(4):
        case 0:
            digits = [at for at in range(start, stop) if chr(content[at]).isdigit()]
            new = chance.choice(b"0123456789-")
            return _replaced(content, chance.choice(digits), bytes([new]))
        case 1:
            return _replaced(content, place, chance.choice((b"(", b"{", b"'", b"O", b"V0", b"0,")))
        case 2:
            length = struct.pack("<Q", _number(chance, stop - start))
            return _replaced(content, max(start - 8, 0), length)
    return _replaced(content, place, chance.randbytes(1))


def _npy(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(written.npy, records)
    if chance.random() < 0.4:
        return disturbed(content, chance)
    if chance.random() < 0.3:
        shape = chance.choice(("(6, 0)", "(10**9, 0)", "(999999999999, 0)", "(-1, 1)", "(True,)"))
        kind = chance.choice(("'<u4'", "'|V0'", "'<U0'", "'|O'", "'<u3'", "[('a', '<u4')]"))
        header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
        return content[:10] + header.encode() + b"\n" + content[128:]
    return _header_changed(content, 10, 70, chance)


def _read_npy(content: bytes) -> Reference:
    try:
        file = io.BytesIO(content)
        array = np.load(file, allow_pickle=False)
        if not array.nbytes or file.tell() != len(content):
            return Reference([], sound=False)
        values = [value.tolist() for value in array]
    except (ValueError, OSError, EOFError, TypeError, SyntaxError, tokenize.TokenError):
        return Reference([], sound=False)
    return Reference([(-1, value) for value in values], sound=True)


def _safetensors(records: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = _original(written.safe_tensors, records)
    (length,) = struct.unpack("<Q", content[:8])
    if chance.random() < 0.4:
        return disturbed(content, chance)
    return _header_changed(content, 8, 8 + length, chance)


def _read_safetensors(content: bytes) -> Reference:
    try:
        arrays = safetensors.numpy.load(content)
        rows = zip(*(array.tolist() for array in arrays.values()), strict=True)
        values = [dict(zip(arrays, row, strict=True)) for row in rows]
    except (SafetensorError, ValueError, TypeError, KeyError):
        return Reference([], sound=False)
    return Reference([(-1, value) for value in values], sound=True)


# --- Compressed --------------------------------------------------------------------------------


def _compressed(write: written.Write, records: tuple[bytes, ...], chance: random.Random) -> bytes:
    pack = chance.choice((gzip.compress, zlib.compress))
    return disturbed(pack(_original(write, records)), chance)


def _read_compressed(read: Callable[[bytes], Reference], content: bytes) -> Reference:
    """Return the records of streams that are whole; those of a cut off one, too, up to its end."""
    parts = []
    sound = True
    rest = content
    while rest:
        stream = zlib.decompressobj(32 + zlib.MAX_WBITS)
        try:
            parts.append(stream.decompress(rest))
        except zlib.error:
            sound = False
            break
        sound = stream.eof
        rest = stream.unused_data.lstrip(b"\0")
    found = read(b"".join(parts))
    return Reference(found.records, found.sound and sound)


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        format: its format.
        mutant: writes records and mutates the file.
        read: the slow reader.
        weight: how many of a hundred mutants are of this kind.
    """

    format: str
    mutant: Callable[[tuple[bytes, ...], random.Random], bytes]
    read: Callable[[bytes], Reference]
    weight: int


KINDS = {
    "tfrecord": Kind("tfrecord", _tfrecord, _read_tfrecord, 28),
    "length_prefixed": Kind("length_prefixed", _length_prefixed, _read_length_prefixed, 12),
    "jsonl": Kind("jsonl", _json_lines, _read_json_lines, 20),
    "tar": Kind("tar", _tar, _read_tar, 10),
    "npy": Kind("npy", _npy, _read_npy, 8),
    "safetensors": Kind("safetensors", _safetensors, _read_safetensors, 8),
    "compressed tfrecord": Kind(
        "tfrecord",
        partial(_compressed, written.tfrecord),
        partial(_read_compressed, _read_tfrecord),
        6,
    ),
    "compressed lines": Kind(
        "jsonl",
        partial(_compressed, written.json_lines),
        partial(_read_compressed, _read_json_lines),
        6,
    ),
    "compressed tar": Kind(
        "tar", partial(_compressed, written.tar), partial(_read_compressed, _read_tar), 2
    ),
}
# The kind of each mutant, by the last two digits of its number.
TURNS = [kind for kind, one in KINDS.items() for _ in range(one.weight)]


def comparable(value: Any) -> Any:
    """Return a value whose arrays are lists, and in which NaN is equal to itself."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@lru_cache
def _records(seed: int) -> tuple[bytes, ...]:
    return tuple(written.records(_RECORDS, seed=seed, longest=20))


@lru_cache(maxsize=2000)
def _original(write: written.Write, records: tuple[bytes, ...]) -> bytes:
    return write(records)


def check(kind: str, number: int) -> None:
    """Compare what is delivered of a mutant with what a slow reader finds."""
    one = KINDS[kind]
    content = one.mutant(_records(number % _FILES), random.Random(number))
    if not content:
        return
    found, flaws = delivered(one.format, content)
    expected = one.read(content)
    upcoming = iter(expected.records)
    where = f"mutant {number} of {kind}"
    for offset, value in found:
        # In order; those between were left out.
        same = any(
            comparable(value) == comparable(theirs) and place in (-1, offset)
            for place, theirs in upcoming
        )
        assert same, f"{where}: a wrong record at {offset}: {value!r}"
    if not flaws:
        assert expected.sound, f"{where}: damage was not noticed"
        assert len(found) == len(expected.records), f"{where}: records are lacking"


def check_all(numbers: Iterable[int]) -> None:
    """Check mutants of all kinds."""
    for number in numbers:
        check(TURNS[number % 100], number)
