"""Copies of runs: to another store, and to and from an archive, one file that holds runs.

A copy is a run only when it is complete: `run.json` is written last. Until then a note at the
destination says which run is arriving, so that an interrupted transfer may be repeated. A copy
has neither the MLflow run of the original, which stays the original's, nor its pin.

An archive is an uncompressed ZIP file (PKWARE APPNOTE 6.3) that any program opens. It has a folder
for each run, and `SHA256SUMS` as `sha256sum --check` reads it.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeAlias

from vinedresser.errors import (
    AlreadyARun,
    ConfigError,
    CorruptData,
    StillRunning,
    StoreError,
)
from vinedresser.objects import Location, Storage, open_storage
from vinedresser.objects.base import check_key, get_chunks
from vinedresser.objects.files import replacing
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.reading.store_runs import run_record
from vinedresser.store.records import (
    Heartbeat,
    PinRecord,
    Record,
    RunRecord,
    TrackingRecord,
    name_at,
    name_fault,
    read_record,
    run_lock,
    write_record,
)
from vinedresser.store.status import run_status

__all__ = ["copy_run", "export_runs", "import_runs"]

# Bytes that are read at a time.
_CHUNK = 8 << 20
_SUMS = "SHA256SUMS"
# What is about the original alone.
_LEFT = frozenset({TrackingRecord.KEY, PinRecord.KEY, run_lock.NAME})

# Content by key, read when it is needed.
_Contents: TypeAlias = Mapping[str, Callable[[], Iterable[bytes]]]


@dataclass(frozen=True)
class _Arrival(Record):
    """A run whose files are being written.

    Attributes:
        id: id of the run.
    """

    KEY: ClassVar[str] = "arriving.json"

    id: str


def copy_run(run: Location, store: Location) -> Location:
    """Copy a run that has ended into another store, under its name.

    Args:
        run: the run.
        store: the other store.

    Returns:
        The copy.

    Raises:
        AlreadyARun: the store has this run, or another one of its name.
        CorruptData: its `run.json` is damaged.
        NotARun: it is none.
        StillRunning: it has not ended.
        StoreError: a store refused, or has files of something else under the name.
    """
    storage = open_storage(run)
    record = _ended(storage)
    target = store / name_at(str(run))
    if _is_there(target, record.id):
        raise AlreadyARun(f"{target}: this run is there already")
    _receive(target, record.id, _contents(storage))
    return target


def export_runs(runs: Sequence[Location], path: Path) -> int:
    """Write runs that have ended to an archive, which is complete or not there.

    Args:
        runs: the runs, whose names differ.

    Returns:
        Its number of bytes.

    Raises:
        ConfigError: the file exists, two runs have the same name, or a file of a run has a name
            that an archive cannot hold.
        CorruptData: a `run.json` is damaged.
        NotARun: one is none.
        StillRunning: one has not ended.
        StoreError: a store refused, or the archive cannot be written.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path}: exists; choose another file")
    named: dict[str, Storage] = {}
    for run in runs:
        storage = open_storage(run)
        _ended(storage)
        name = name_at(str(run))
        if name in named:
            raise ConfigError(f"{name}: two of the runs have this name; export them apart")
        named[name] = storage
    sums = []
    try:
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "x") as archive:
            for name, storage in named.items():
                for key, content in _contents(storage).items():
                    _check_name(run=storage.location, key=key)
                    digest = _add(archive, f"{name}/{key}", content())
                    sums.append(f"{digest}  {name}/{key}\n")
            _add(archive, _SUMS, ["".join(sums).encode()])
        return path.stat().st_size
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def import_runs(path: Path, store: Location) -> Iterator[tuple[Location, bool]]:
    """Write the runs of an archive to a store; yield each when it is complete, and if it is new.

    Nothing is written before all checksums were found to be right. A run that the store has already
    stays, so that an import which was interrupted may be repeated.

    Raises:
        AlreadyARun: the store has another run of the name of one.
        ConfigError: the file does not exist or cannot be read.
        CorruptData: the archive is damaged, or none of ours.
        StoreError: the store refused, or has files of something else under a name.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    with file:
        try:
            runs = _verified(zipfile.ZipFile(file), os.fstat(file.fileno()).st_size)
        except _DAMAGED as error:
            raise CorruptData(f"{path}: not a sound archive of runs: {error}") from error
        for name, (identity, contents) in runs.items():
            target = store / name
            new = not _is_there(target, identity)
            if new:
                _receive(target, identity, contents)
            yield target, new


# What `zipfile` raises for damaged archives, beside the errors of JSON.
_DAMAGED = (*DAMAGE, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OverflowError)


def _ended(storage: Storage) -> RunRecord:
    """Return the record of a run that has ended."""
    record = run_record(storage)
    if not run_status(storage).over:
        raise StillRunning(f"{storage.location}: it has not ended; copy it when it has, or stop it")
    return record


def _contents(storage: Storage) -> _Contents:
    """Return what a copy gets of a run."""
    keys = (key for key in storage.list("") if key not in _LEFT)
    return {key: partial(get_chunks, storage, key) for key in keys}


def _is_there(target: Location, identity: str) -> bool:
    """Return whether a run is at its destination."""
    present = read_record(open_storage(target), RunRecord)
    if present is not None and present.id != identity:
        raise AlreadyARun(f"{target}: another run of this name is there already")
    return present is not None


def _receive(target: Location, identity: str, contents: _Contents) -> None:
    """Write a run, `run.json` last."""
    storage = open_storage(target)
    arrival = read_record(storage, _Arrival)
    if arrival != _Arrival(identity):
        if storage.list(""):
            raise StoreError(f"{target}: has files, but no run; choose another store")
        write_record(storage, _Arrival(identity))
    # A heartbeat alone would count as a run.
    for key in sorted(contents, key=lambda key: key.startswith(f"{Heartbeat.KEY}/")):
        if key not in (RunRecord.KEY, _Arrival.KEY):
            storage.put(key, contents[key]())
    storage.put(RunRecord.KEY, contents[RunRecord.KEY](), exclusive=True)
    storage.delete(_Arrival.KEY)


def _check_name(run: str, key: str) -> None:
    if "\\" in key or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in key):
        raise ConfigError(
            f"{run}: {key!r}: an archive cannot hold this name; rename the file, which is not ours"
        )


def _add(archive: zipfile.ZipFile, name: str, content: Iterable[bytes]) -> str:
    """Add a file to an archive, and return its SHA-256."""
    digest = hashlib.sha256()
    with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
        for chunk in content:
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _verified(archive: zipfile.ZipFile, size: int) -> dict[str, tuple[str, _Contents]]:
    """Return the id and the contents of each run by name, once all checksums are right.

    Args:
        archive: the archive.
        size: its number of bytes.
    """
    members = [member for member in archive.infolist() if not member.is_dir()]
    stored = sum(member.file_size for member in members)
    if any(member.compress_type for member in members) or stored > size:
        raise CorruptData("its files are compressed or overlap, which those of an export are not")
    lines = _text(archive, _SUMS).split("\n")
    sums = dict(line.split("  ", 1)[::-1] for line in lines if line)
    names = [member.filename for member in members if member.filename != _SUMS]
    if sorted(names) != sorted(sums):
        raise CorruptData(f"its files are not those of {_SUMS}")
    runs: dict[str, dict[str, Callable[[], Iterable[bytes]]]] = {}
    for name in names:
        run, _, key = name.partition("/")
        _check_place(run, key)
        digest = hashlib.sha256()
        for chunk in _read(archive, name):
            digest.update(chunk)
        if digest.hexdigest() != sums[name]:
            raise CorruptData(f"{name}: its checksum is wrong")
        if key not in _LEFT:
            runs.setdefault(run, {})[key] = partial(_read, archive, name)
    return {run: (_identity(run, contents), contents) for run, contents in runs.items()}


def _check_place(run: str, key: str) -> None:
    """Check that what an archive has under a name belongs into a run directory."""
    if fault := name_fault(run):
        raise CorruptData(fault)
    try:
        check_key(key)
    except StoreError as error:
        raise CorruptData(str(error)) from error


def _identity(run: str, contents: _Contents) -> str:
    if RunRecord.KEY not in contents:
        raise CorruptData(f"{run}: there is no {RunRecord.KEY}")
    return RunRecord.from_json(parse_json(b"".join(contents[RunRecord.KEY]()))).id


def _read(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _text(archive: zipfile.ZipFile, name: str) -> str:
    try:
        return b"".join(_read(archive, name)).decode()
    except KeyError as error:
        raise CorruptData(f"there is no {name}") from error
