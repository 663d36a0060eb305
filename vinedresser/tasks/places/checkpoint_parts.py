"""Whether a checkpoint is complete: the files of all ranks are there, none cut off or damaged.

A file is judged by what its own format has for that: the CRC-32 of ZIP archives (``torch.save``,
npz, ``.keras``) and the lengths in the header of a safetensors file. Nothing is unpickled.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from vinedresser.errors import StoreError
from vinedresser.objects import LocalStorage, Storage
from vinedresser.objects.files import open_file
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = ["RankFile", "fault_of", "is_other", "rank_file"]

# The number of a rank among all, not in a dimension of a mesh ("tp_rank_0") or on a host, nor the
# rank of a matrix.
_RANK = re.compile(
    r"(?<![a-z])((?:[a-z]p|[a-z]*parallel|tensor|pipeline|expert|local|node|group|lora)[._-])?"
    r"rank[._-]?(\d+)",
    re.IGNORECASE,
)
# Not how far the training is.
_NUMBERED = re.compile(r"(?<!\d)(?<!step[._-])(?<!epoch[._-])(\d+)-of-(\d+)")
# torch.distributed.checkpoint writes its index last, which names its files.
_DISTRIBUTED = re.compile(rb"__\d+_\d+\.distcp")
_INDEX = ".metadata"
_RANK_INDEX = re.compile(r"__\d+\.metadata")
_ZIP, _LENGTH = b"PK\x03\x04", 8
# Bytes of a header of safetensors, of which the format allows no more.
_MOST_HEADER = 100_000_000
_DAMAGED = (*DAMAGE, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


class RankFile(NamedTuple):
    """The file of one rank in a checkpoint.

    Attributes:
        number: the number of the rank, as it is written.
        around: the parts of its name before and after the number, which it may have several times.
    """

    number: str
    around: tuple[str, ...]


def rank_file(name: str) -> RankFile | None:
    """Return which rank's file a name is, such as ``step-60_rank_1.pt``; None for other files."""
    found = [*_RANK.finditer(name)]
    numbers = {one[2] for one in found}
    if len(numbers) != 1 or any(one[1] for one in found):
        return None
    starts, ends = [0, *(one.end(2) for one in found)], [*(one.start(2) for one in found), None]
    around = tuple(name[start:end] for start, end in zip(starts, ends, strict=True))
    return RankFile(numbers.pop(), around)


def is_other(numbers: Collection[int], ranks: int) -> bool:
    """Return whether the only number in names that differ in nothing else is not that of a rank.

    So it is with the rank of a matrix, which the ranks of the training do not reach.
    """
    return len(numbers) == 1 and max(numbers) >= ranks


def fault_of(storage: Storage, keys: Sequence[str], ranks: int) -> str:
    """Return which file of a checkpoint is missing, cut off or damaged; "" if none is known to be.

    On an object store the contents are not looked at.

    Args:
        storage: the run directory.
        ranks: number of ranks of the run.

    Raises:
        StoreError: the storage refused a request.
    """
    if fault := _missing_rank(keys, ranks) or _missing_number(keys):
        return fault
    fault, unused = _unindexed(storage, keys, ranks)
    if not fault and isinstance(storage, LocalStorage):
        for key in keys:
            if key not in unused and (fault := _damage(storage, key)):
                return f"{_short(key)} {fault}"
    return fault


def _short(key: str) -> str:
    return key.partition("/")[2]


def _missing_rank(keys: Iterable[str], ranks: int) -> str:
    """Return which rank's file is missing."""
    forms: dict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for key in keys:
        if one := rank_file(_short(key)):
            forms[one.around][int(one.number)] = one.number
    for around, found in forms.items():
        if is_other(found, ranks):
            continue
        if max(found) >= ranks:
            name = found[max(found)].join(around)
            return f"{name} is of a rank that the run did not have"
        padded = any(number != str(rank) for rank, number in found.items())
        width = len(found[max(found)]) if padded else 1
        if missing := sorted({*range(ranks)} - {*found}):
            return f"{f'{missing[0]:0{width}}'.join(around)} is missing"
    return ""


def _missing_number(keys: Iterable[str]) -> str:
    """Return what is missing of files that say in their names how many they are."""
    forms: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for key in map(_short, keys):
        for found in _NUMBERED.finditer(key):
            forms[key[: found.start()], found[2], key[found.end() :]].add(found[1])
    for (before, count, after), numbers in forms.items():
        if len(numbers) < int(count):
            return f"{before}*-of-{count}{after}: {len(numbers)} of {int(count)} files are there"
    return ""


def _unindexed(storage: Storage, keys: Iterable[str], ranks: int) -> tuple[str, set[str]]:
    """Return what is missing in a folder of ``torch.distributed.checkpoint``, and unused keys.

    A rank without a tensor of its own writes a file, too, which is empty and in no index.
    """
    unused: set[str] = set()
    folders: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        folder, _, name = key.rpartition("/")
        folders[folder].add(name)
    for folder, names in folders.items():
        indexes = [_INDEX]
        if any(map(_RANK_INDEX.fullmatch, names)):
            # Saved with use_collectives=False.
            indexes = [f"__{rank}{_INDEX}" for rank in range(ranks)]
        elif not any(name == _INDEX or _DISTRIBUTED.fullmatch(name.encode()) for name in names):
            continue
        listed = {*indexes}
        for index in listed & names:
            # A pickle, in which names are plain bytes: it is searched, and not loaded.
            try:
                content = storage.get(f"{folder}/{index}")
            except StoreError as error:
                if not isinstance(storage, LocalStorage):
                    raise
                return f"{_short(folder)}/{index} cannot be read: {error}", unused
            listed |= {name.decode() for name in _DISTRIBUTED.findall(content)}
        if missing := sorted(listed - names):
            return f"{_short(folder)}/{missing[0]} is missing", unused
        others = (name for name in names - listed if _DISTRIBUTED.fullmatch(name.encode()))
        unused |= {f"{folder}/{name}" for name in others}
    return "", unused


def _damage(storage: LocalStorage, key: str) -> str:
    """Return in which way a file is cut off or damaged, as far as its format tells."""
    try:
        descriptor = open_file(storage.location, key)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    with io.FileIO(descriptor) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_LENGTH)
        if not size:
            # In a folder, a name like "_SUCCESS" is all that such a file has to say.
            mark = "/" in _short(key) and not PurePath(key).suffix
            return "" if mark else "is empty"
        if head.startswith(_ZIP):
            return _archive_damage(file, size, several=key.endswith(".distcp"))
        return _tensors_damage(file, head, size) if key.endswith(".safetensors") else ""


def _tensors_damage(file: io.FileIO, head: bytes, size: int) -> str:
    """Return whether a safetensors file has another length than its header says."""
    length = int.from_bytes(head, "little")
    if length > _MOST_HEADER:
        return "has a damaged header"
    if length > size - _LENGTH:
        return "is cut off in its header"
    try:
        header = parse_json(file.read(length))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        wanted = _LENGTH + length + max(ends, default=0)
    except DAMAGE:
        return "has a damaged header"
    return "" if size == wanted else f"has {size:,} bytes instead of {wanted:,}"


def _archive_damage(file: io.FileIO, end: int, *, several: bool) -> str:
    """Return which entry of a ZIP archive is damaged.

    Args:
        end: its size in bytes.
        several: it is a sequence of archives, as of the tensors in a .distcp file.
    """
    try:
        while end:
            with zipfile.ZipFile(_Beginning(file, end)) as archive:
                entries = archive.infolist()
                for one in entries:
                    if not one.CRC:
                        # Saved by torch without checksums (`set_crc32_options`).
                        del one.CRC
                if damaged := archive.testzip():
                    return f"is damaged: {damaged} has another checksum"
            end = min((one.header_offset for one in entries), default=0) if several else 0
    except _DAMAGED as error:
        return f"is cut off or damaged: {error}"
    return ""


class _Beginning(io.RawIOBase):
    """The first bytes of a file as a file of their own.

    Args:
        file: the whole file.
        size: number of bytes.
    """

    def __init__(self, file: io.FileIO, size: int) -> None:
        super().__init__()
        self._file, self._size = file, size

    def readable(self) -> bool:
        """See `io.IOBase.readable`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase.seekable`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase.tell`."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.IOBase.seek`."""
        if whence == os.SEEK_END:
            offset, whence = self._size + offset, os.SEEK_SET
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase.readinto`."""
        view = memoryview(buffer)[: max(self._size - self._file.tell(), 0)]
        return self._file.readinto(view) or 0
