"""Copies of runs: to another store, and to and from an archive, one file that holds runs.

A copy is a run only when it is complete: `run.json` is written last. Until then a note at the
destination says which run is arriving, so that an interrupted transfer may be repeated. A copy
has neither the MLflow run of the original, which stays the original's, nor its pin.

A sweep or pruning is copied with its runs and its own files. In a directory it arrives under a
temporary name, so that it appears at once. On an object store its own files lie beside its runs,
where other machines find them, and in the folder of its state on this machine, as those of any
sweep there.

An archive is an uncompressed ZIP file (PKWARE APPNOTE 6.3) that any program opens. It has a folder
for each run, sweep or pruning, and `SHA256SUMS` as `sha256sum --check` reads it.
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
from typing import ClassVar, NamedTuple, TypeAlias

from vinedresser.errors import (
    AlreadyARun,
    ConfigError,
    CorruptData,
    StillRunning,
    StoreError,
)
from vinedresser.infra.catalog.stores import living_owner, private_state
from vinedresser.objects import LocalStorage, Location, Storage, open_storage
from vinedresser.objects.base import TEMPORARY, check_key, get_chunks
from vinedresser.objects.files import replacing
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.reading.store_runs import run_record, runs_in
from vinedresser.store.records import (
    Heartbeat,
    ParentRecord,
    PinRecord,
    Record,
    RunRecord,
    TrackingRecord,
    encoded,
    name_at,
    name_fault,
    read_record,
    run_lock,
    write_record,
)
from vinedresser.store.spool import spools
from vinedresser.store.status import run_status
from vinedresser.tasks.parents.kinds import KINDS, parent_at

__all__ = ["ARRIVING", "Exported", "copy_run", "export_runs", "import_runs"]

ARRIVING = f"{TEMPORARY}arriving-"
"""Begins the name of the folder of a sweep or pruning that is being copied."""

# Bytes that are read at a time.
_CHUNK = 8 << 20
_SUMS = "SHA256SUMS"
# What is about the original alone.
_LEFT = frozenset({TrackingRecord.KEY, PinRecord.KEY, run_lock.NAME})

# Content by key, read when it is needed.
_Contents: TypeAlias = Mapping[str, Callable[[], Iterable[bytes]]]


@dataclass(frozen=True)
class _Arrival(Record):
    """A run, sweep or pruning whose files are being written."""

    KEY: ClassVar[str] = "arriving.json"

    id: str


@dataclass(frozen=True)
class _Parcel:
    """A run, or a sweep or pruning with its runs, on its way.

    Attributes:
        contents: content by key in its folder, that of its record included.
        kind: the record of a sweep or pruning; None: it is a run.
    """

    id: str
    contents: _Contents
    kind: type[ParentRecord] | None = None

    @property
    def keys(self) -> list[str]:
        """The keys in the order in which they are written: what makes it a run or sweep last."""
        own = self.kind.KEY if self.kind is not None else RunRecord.KEY

        def order(key: str) -> int:
            inner = key if self.kind is None or _is_own(self.kind, key) else key.partition("/")[2]
            # A heartbeat alone would count as a run.
            marks = (inner.startswith(f"{Heartbeat.KEY}/"), inner == RunRecord.KEY, key == own)
            return max((rank for rank, mark in enumerate(marks, 1) if mark), default=0)

        return sorted((key for key in self.contents if key != _Arrival.KEY), key=order)

    @property
    def runs(self) -> int:
        """The number of its runs."""
        marks = (key for key in self.contents if key.rpartition("/")[2] == RunRecord.KEY)
        return sum(key.count("/") == (self.kind is not None) for key in marks)


class Exported(NamedTuple):
    """What an archive has.

    Attributes:
        runs: number of runs, trials of sweeps and rounds of prunings included.
        bytes: number of bytes.
    """

    runs: int
    bytes: int


def copy_run(run: Location, store: Location) -> Location:
    """Copy a run, or a sweep or pruning with its runs, that has ended, under its name.

    Args:
        run: the run, or the store of the runs of a sweep or pruning.
        store: the other store.

    Returns:
        The copy.

    Raises:
        AlreadyARun: the store has it, or another one of its name.
        ConfigError: the store is a run, a sweep's or a pruning's; or a run of a sweep is a link.
        CorruptData: a record is damaged.
        NotARun: it is none.
        StillRunning: it, or a run of it, has not ended.
        StoreError: a store refused, or has files of something else under the name.
    """
    _check_store(store)
    parcel = _packed(run)
    target = store / name_at(str(run))
    if _is_there(target, parcel):
        raise AlreadyARun(f"{target}: this {_word(parcel.kind)} is there already")
    _receive(target, parcel)
    return target


def export_runs(runs: Sequence[Location], path: Path) -> Exported:
    """Write runs, sweeps and prunings to an archive, which is complete or not there.

    Args:
        runs: what `copy_run` takes; the names differ.

    Raises:
        ConfigError: the file exists, two runs have the same name, a file of a run has a name that
            an archive cannot hold, or a run of a sweep is a link.
        CorruptData: a record is damaged.
        NotARun: one is none.
        StillRunning: one has not ended.
        StoreError: a store refused, or the archive cannot be written.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path}: exists; choose another file")
    named: dict[str, _Parcel] = {}
    for run in runs:
        name = name_at(str(run))
        if name in named:
            raise ConfigError(f"{name}: two of the runs have this name; export them apart")
        named[name] = _packed(run)
        for key in named[name].contents:
            _check_name(run, key)
    sums = []
    try:
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "x") as archive:
            for name, parcel in named.items():
                for key in parcel.keys:
                    digest = _add(archive, f"{name}/{key}", parcel.contents[key]())
                    sums.append(f"{digest}  {name}/{key}\n")
            _add(archive, _SUMS, ["".join(sums).encode()])
        return Exported(sum(parcel.runs for parcel in named.values()), path.stat().st_size)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def import_runs(path: Path, store: Location) -> Iterator[tuple[Location, bool]]:
    """Write what an archive has to a store; yield each when it is complete, and if it is new.

    Nothing is written before all checksums were found to be right. What the store has already
    stays, so that an import which was interrupted may be repeated.

    Raises:
        AlreadyARun: the store has another run, sweep or pruning of the name of one.
        ConfigError: the file does not exist or cannot be read, or the store is a run, a sweep's or
            a pruning's.
        CorruptData: the archive is damaged, or none of ours.
        StoreError: the store refused, or has files of something else under a name.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    _check_store(store)
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    with file:
        try:
            parcels = _verified(zipfile.ZipFile(file), os.fstat(file.fileno()).st_size)
        except _DAMAGED as error:
            raise CorruptData(f"{path}: not a sound archive of runs: {error}") from error
        for name, parcel in parcels.items():
            target = store / name
            new = not _is_there(target, parcel)
            if new:
                _receive(target, parcel)
            yield target, new


# What `zipfile` raises for damaged archives, beside the errors of JSON.
_DAMAGED = (*DAMAGE, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OverflowError)


def _check_store(store: Location) -> None:
    """Refuse to write runs where they would count as part of something else."""
    if open_storage(store).exists(RunRecord.KEY):
        raise ConfigError(f"{store}: a run, not a store of runs; choose another one")
    if (found := parent_at(store)) is not None:
        kind, _ = found
        raise ConfigError(f"{store}: the folder of a {kind.WORD}, not a store; choose another one")


def _packed(location: Location) -> _Parcel:
    """Return a run, or a sweep or pruning with its runs, that has ended."""
    whole = parent_at(location)
    if whole is None:
        return _Parcel(_ended(location).id, _contents(open_storage(location)))
    kind, own = whole
    record = read_record(own, kind)
    if record is None or "status" not in record.end:
        raise StillRunning(
            f"{location}: this {kind.WORD} has not ended, or nothing has recorded its end; copy it "
            "when it has, stop it, or use vinedresser reconcile"
        )
    keys = [key for one in kind.FILES for key in own.list(one) if _is_own(kind, key)]
    contents: dict[str, Callable[[], Iterable[bytes]]] = {
        key: partial(get_chunks, own, key) for key in keys
    }
    for run in runs_in(location):
        if isinstance(run, Path) and run.is_symlink():
            raise ConfigError(f"{run}: a link, which no copy follows; copy the {kind.WORD} without")
        _ended(run)
        contents |= {f"{run.name}/{key}": one for key, one in _contents(open_storage(run)).items()}
    return _Parcel(record.id, contents | {kind.KEY: partial(_record, own, record)}, kind)


def _is_own(kind: type[ParentRecord], key: str) -> bool:
    """Return whether a key is that of a file of a sweep or pruning, not of a run of it."""
    return any(key == one or (one[-1] == "/" and key.startswith(one)) for one in kind.FILES)


def _record(own: Storage, record: ParentRecord) -> list[bytes]:
    """Return the record of the copy of a sweep or pruning, when all the rest has been copied."""
    if read_record(own, type(record)) != record:
        raise StillRunning(f"{own.location}: this {record.WORD} began again while it was copied")
    return [encoded(record.copied())]


def _ended(run: Location) -> RunRecord:
    storage = open_storage(run)
    record = run_record(storage)
    status = run_status(storage)
    if not status.over:
        raise StillRunning(f"{run}: it has not ended; copy it when it has, or stop it")
    if not isinstance(run, Path) and spools(str(run)):
        raise StillRunning(f"{run}: its data is not uploaded yet: vinedresser reconcile")
    if status.state == "dead" and (owner := living_owner(run)) is not None:
        raise StillRunning(f"{run}: nothing has recorded its end, and {owner.said}")
    return record


def _contents(storage: Storage) -> _Contents:
    """Return what a copy gets of a run."""
    keys = (key for key in storage.list("") if key not in _LEFT)
    return {key: partial(get_chunks, storage, key) for key in keys}


def _is_there(target: Location, parcel: _Parcel) -> bool:
    """Return whether what arrives is at its destination."""
    storage = open_storage(target)
    whole = parent_at(target)
    kind, own = whole if whole is not None else (None, storage)
    present: RunRecord | ParentRecord | None = (
        read_record(storage, RunRecord) if kind is None else read_record(own, kind)
    )
    if present is None:
        return False
    if (present.id, kind) != (parcel.id, parcel.kind):
        raise AlreadyARun(f"{target}: another {_word(kind)} of this name is there already")
    # On an object store its own files may be there, and not in the folder of its state.
    return kind is None or read_record(storage, _Arrival) != _Arrival(parcel.id)


def _word(kind: type[ParentRecord] | None) -> str:
    return "run" if kind is None else kind.WORD


def _receive(target: Location, parcel: _Parcel) -> None:
    """Write what arrives, its record last."""
    place = target
    if parcel.kind is not None and isinstance(target, Path):
        place = target.with_name(f"{ARRIVING}{target.name}")
    if isinstance(place, Path) and place.is_symlink():
        raise StoreError(f"{place}: a link, which no copy follows; choose another store")
    storage = open_storage(place)
    if read_record(storage, _Arrival) != _Arrival(parcel.id):
        for one in (place, target):
            if open_storage(one).list(""):
                word = _word(parcel.kind)
                raise StoreError(f"{one}: has files, but no {word}; choose another store")
        write_record(storage, _Arrival(parcel.id))
    for key in parcel.keys:
        first = parcel.kind is None and key == RunRecord.KEY
        storage.put(key, parcel.contents[key](), exclusive=first)
    if parcel.kind is not None:
        _establish(place, target, parcel, parcel.kind)
    open_storage(target).delete(_Arrival.KEY)


def _establish(
    place: Location, target: Location, parcel: _Parcel, kind: type[ParentRecord]
) -> None:
    """Make a sweep or pruning known whose files and runs have arrived."""
    if isinstance(target, Path):
        try:
            os.rename(place, target)
        except OSError as error:
            raise StoreError(f"{target}: {error.strerror}") from error
        return
    state = LocalStorage(private_state(target))
    for key in parcel.keys:
        if _is_own(kind, key):
            state.put(key, parcel.contents[key]())


def _check_name(run: Location, key: str) -> None:
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


def _verified(archive: zipfile.ZipFile, size: int) -> dict[str, _Parcel]:
    """Return what an archive has by name, once all checksums are right.

    Args:
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
        runs.setdefault(run, {})[key] = partial(_read, archive, name)
    return {name: _unpacked(name, contents) for name, contents in runs.items()}


def _unpacked(name: str, contents: _Contents) -> _Parcel:
    """Return what a folder of an archive is."""
    kind = next((one for one in KINDS if one.KEY in contents), None)
    if kind is None or RunRecord.KEY in contents:
        taken = {key: content for key, content in contents.items() if key not in _LEFT}
        return _Parcel(_identity(name, taken), taken)
    record = kind.from_json(parse_json(b"".join(contents[kind.KEY]())))
    taken = {kind.KEY: lambda: [encoded(record.copied())]}
    runs: dict[str, dict[str, Callable[[], Iterable[bytes]]]] = {}
    for key, content in contents.items():
        run, _, inner = key.partition("/")
        if _is_own(kind, key):
            taken.setdefault(key, content)
        elif inner not in _LEFT:
            runs.setdefault(run, {})[inner] = content
    for run, inside in runs.items():
        if fault := name_fault(run):
            raise CorruptData(fault)
        _identity(f"{name}/{run}", inside)
        taken |= {f"{run}/{inner}": content for inner, content in inside.items()}
    return _Parcel(record.id, taken, kind)


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
