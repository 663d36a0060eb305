"""Files of training data, written by other libraries or by slow and obvious code."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import safetensors.numpy
from pyarrow import parquet

from vinedresser.data import Batch


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_REMAINDERS = [_remainder(byte) for byte in range(256)]


def crc32c(content: bytes) -> int:
    """Return the CRC32C, byte by byte (RFC 3720, B.4)."""
    state = 0xFFFFFFFF
    for byte in content:
        state = state >> 8 ^ _REMAINDERS[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def masked(content: bytes) -> bytes:
    checksum = crc32c(content)
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def tfrecord(records: Iterable[bytes]) -> bytes:
    framed = []
    for record in records:
        length = struct.pack("<Q", len(record))
        framed.append(length + masked(length) + record + masked(record))
    return b"".join(framed)


def length_prefixed(records: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(record)) + record for record in records)


def tar(records: Iterable[bytes], *, kind: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for number, record in enumerate(records):
            # Every third name is too long for the header.
            folder = "long-" * 40 if number % 3 == 0 else "short"
            for field, content in {"bin": record, "Number.txt": b"%d" % number}.items():
                member = tarfile.TarInfo(f"{folder}/{number:06d}.{field}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def npy(records: Sequence[bytes]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([np.frombuffer(record[:4], "<u4") for record in records]))
    return file.getvalue()


def safe_tensors(records: Sequence[bytes]) -> bytes:
    numbers = np.array([np.frombuffer(record[:4], "<u4")[0] for record in records])
    wide = np.repeat(numbers[:, None].astype(np.float64), 3, axis=1)
    return safetensors.numpy.save({"wide": wide, "numbers": numbers})


def json_lines(records: Sequence[bytes]) -> bytes:
    return b"".join(json.dumps({"hex": record.hex()}).encode() + b"\n" for record in records)


def parquet_file(records: Sequence[bytes]) -> bytes:
    table = pa.table({"content": [*records], "size": [len(record) for record in records]})
    file = io.BytesIO()
    parquet.write_table(table, file, row_group_size=7)
    return file.getvalue()


Write = Callable[[Sequence[bytes]], bytes]

# By the name of a kind: the ending, the writer, and the record that a value stands for. In the
# formats of arrays these are the first four bytes.
KINDS: dict[str, tuple[str, Write, Callable[[Any], bytes]]] = {
    "tfrecord": (".tfrecord", tfrecord, bytes),
    "gzip": (".tfrecord.gz", lambda records: gzip.compress(tfrecord(records)), bytes),
    "zlib": (".tfrecord", lambda records: zlib.compress(tfrecord(records)), bytes),
    "length_prefixed": (".raw", length_prefixed, bytes),
    "tar": (".tar", tar, lambda value: bytes(value["bin"])),
    "gnu": (
        ".tar",
        lambda records: tar(records, kind=tarfile.GNU_FORMAT),
        lambda value: bytes(value["bin"]),
    ),
    "tgz": (".tgz", lambda records: gzip.compress(tar(records)), lambda value: bytes(value["bin"])),
    "npy": (".npy", npy, lambda value: bytes(value.tobytes())),
    "safetensors": (
        ".safetensors",
        safe_tensors,
        lambda value: struct.pack("<I", int(value["wide"][2])),
    ),
    "jsonl": (".jsonl", json_lines, lambda value: bytes.fromhex(value["hex"])),
    "compressed lines": (
        ".jsonl.gz",
        lambda records: gzip.compress(json_lines(records)),
        lambda value: bytes.fromhex(value["hex"]),
    ),
    "parquet": (".parquet", parquet_file, lambda value: bytes(value["content"])),
}


def records(count: int, *, seed: int = 0, longest: int = 40) -> list[bytes]:
    """Return different records of different lengths, each of four bytes at least."""
    generator = np.random.default_rng(seed)
    return [
        struct.pack("<I", seed * 1_000_000 + number)
        + generator.bytes(int(generator.integers(longest)))
        for number in range(count)
    ]


def write_files(folder: Path, counts: Sequence[int]) -> list[list[bytes]]:
    """Write TFRecord files with numbers of records; return the records of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [records(count, seed=number) for number, count in enumerate(counts)]
    for number, content in enumerate(written):
        (folder / f"{number:03d}.tfrecord").write_bytes(tfrecord(content))
    return written


def values(batches: Iterable[Batch]) -> list[Any]:
    return [value for batch in batches for value in batch.values]
