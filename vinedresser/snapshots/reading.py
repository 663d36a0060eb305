"""Reading snapshots, which may be damaged, of another version, or made by anybody."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vinedresser.errors import ConfigError, CorruptData, KeyMissing
from vinedresser.objects import Storage, open_storage, parse_location
from vinedresser.snapshots.record import (
    SnapshotRecord,
    record_key,
    step_and_rank,
    tensors_key,
)
from vinedresser.snapshots.tensor_file import read_tensors
from vinedresser.snapshots.trees import Codec, HostArray, unpack
from vinedresser.store.index.document import unseal
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = ["Snapshot", "list_snapshots", "open_snapshot"]

# A record larger than this is not one of ours: it names tensors and holds no data.
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that can be read.

    Attributes:
        location: its directory or URL.
    """

    location: str
    storage: Storage
    record: SnapshotRecord
    # Of the same step by all ranks, which share it; none until somebody asks for the others.
    _ranks: list[Snapshot] = field(default_factory=list, repr=False, compare=False)

    @property
    def place(self) -> str:
        """Its directory or URL, whatever it was opened by."""
        return f"{self.storage.location}/{self.record.KEY}/{self.record.name}"

    @cached_property
    def tensors(self) -> Mapping[str, HostArray]:
        """The tensors by name.

        Raises:
            CorruptData: they are missing or damaged.
            StoreError: the storage refused.
        """
        key = tensors_key(self.record.name)
        try:
            content = self.storage.get(key, 0, self.record.bytes + 1)
        except KeyMissing as error:
            raise CorruptData(f"{error}; the snapshot is incomplete") from error
        if len(content) != self.record.bytes:
            raise CorruptData(
                f"{self.storage.location}/{key}: damaged: it does not have the recorded "
                f"{self.record.bytes} bytes"
            )
        if hashlib.sha256(content).hexdigest() != self.record.sha256:
            raise CorruptData(f"{self.storage.location}/{key}: damaged: wrong SHA-256")
        try:
            return read_tensors(content)
        except CorruptData as error:
            raise CorruptData(f"{self.storage.location}/{key}: {error}") from error

    @property
    def peers(self) -> list[Snapshot]:
        """Those of the same step by the other ranks, as they were when they were first asked for.

        What one of them has read of another one is not read again.

        Raises:
            StoreError: the storage refused.
        """
        if not self._ranks:
            # Before the first is added: without an answer, the others are not known.
            records = list_snapshots(self.storage, [])
            self._ranks.append(self)
            folder = f"{self.storage.location}/{SnapshotRecord.KEY}"
            self._ranks.extend(
                Snapshot(f"{folder}/{one.name}", self.storage, one, self._ranks)
                for one in records
                if one.step == self.record.step and one.rank != self.record.rank
            )
        return [one for one in self._ranks if one is not self]

    def value(self, tree: Any, codec: Codec) -> Any:
        """Return the value of a tree of the record.

        Args:
            codec: builds the framework's types.

        Raises:
            CorruptData: it is damaged.
            StoreError: the storage refused.
        """
        try:
            return unpack(tree, self.tensors.__getitem__, codec)
        except CorruptData as error:
            where = self.storage.location
            if str(error).startswith(where):
                raise
            raise CorruptData(f"{where}/{record_key(self.record.name)}: {error}") from error


def open_snapshot(location: str | os.PathLike[str]) -> Snapshot:
    """Open a snapshot.

    Args:
        location: its directory or URL, ``RUN/snapshots/step-N``.

    Raises:
        ConfigError: the location is not that of a snapshot, or there is none.
        CorruptData: its record is damaged or of another version.
        StoreError: the storage refused.
    """
    place = parse_location(location)
    if step_and_rank(place.name) is None or place.parent.name != SnapshotRecord.KEY:
        raise ConfigError(
            f"{location}: not a snapshot; expected RUN/snapshots/step-N "
            "(`vinedresser snapshots RUN` lists them)"
        )
    storage = open_storage(place.parent.parent)
    try:
        record = _read(storage, place.name)
    except KeyMissing as error:
        raise ConfigError(
            f"{location}: no snapshot; `vinedresser snapshots {place.parent.parent}` lists those "
            "of the run"
        ) from error
    return Snapshot(str(place), storage, record)


def list_snapshots(storage: Storage, faults: list[str]) -> list[SnapshotRecord]:
    """Return the records of a run's snapshots, by step and rank.

    Args:
        faults: receives one sentence for each damaged record.

    Raises:
        StoreError: the storage refused.
    """
    found = []
    try:
        names = storage.folders(f"{SnapshotRecord.KEY}/")
    except CorruptData as error:
        faults.append(str(error))
        return []
    for name in names:
        if step_and_rank(name) is None:
            continue
        try:
            found.append(_read(storage, name))
        except KeyMissing:
            # It is being written, or was not completed.
            continue
        except CorruptData as error:
            faults.append(str(error))
    return sorted(found, key=lambda one: (one.step, one.rank))


def _read(storage: Storage, name: str) -> SnapshotRecord:
    """Return the record of a snapshot.

    Raises:
        KeyMissing: there is none.
    """
    key = record_key(name)
    content = storage.get(key, 0, _MOST_BYTES)
    try:
        record = SnapshotRecord.from_json(unseal("snapshot", content, parse_json))  # type: ignore[arg-type]
    except DAMAGE as error:
        raise CorruptData(f"{storage.location}/{key}: not a valid snapshot: {error}") from error
    if record.name != name:
        raise CorruptData(f"{storage.location}/{key}: it is the record of {record.name}")
    return record
