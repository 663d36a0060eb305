"""Writing snapshots into a run, and keeping a bounded number of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from vinedresser.errors import StoreError, StoreFull
from vinedresser.objects import LocalStorage, Storage
from vinedresser.snapshots.record import (
    Reason,
    SnapshotRecord,
    record_key,
    step_and_rank,
    tensors_key,
)
from vinedresser.snapshots.replay_record import replay_key
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.snapshots.tensor_file import file_parts
from vinedresser.snapshots.trees import HostArray
from vinedresser.store.index.document import seal, to_json


@dataclass
class SnapshotFolder:
    """The snapshots that this process has written, within the limits of the settings."""

    storage: Storage
    rank: int
    settings: SnapshotSettings
    # Name and size of each snapshot, oldest first, by reason.
    _kept: dict[Reason, dict[str, int]] = field(
        default_factory=lambda: {"nonfinite": {}, "jump": {}, "periodic": {}}
    )

    def has_room(self, step: int, reason: Reason) -> bool:
        """Return whether a snapshot may be taken that is not periodic: only the first ones are.

        Args:
            step: its step, of which there is at most one.
        """
        bad = [*self._kept["nonfinite"], *self._kept["jump"]]
        taken = any(step_and_rank(name) == (step, self.rank) for name in bad)
        return len(self._kept[reason]) < self.settings.keep and not taken

    def write(self, record: SnapshotRecord, tensors: Mapping[str, HostArray]) -> SnapshotRecord:
        """Write a snapshot: first its tensors, then the record that makes it one.

        Args:
            record: its record, without size and digest of the tensors.
            tensors: its tensors by name.

        Returns:
            The complete record.

        Raises:
            StoreFull: it is larger than the limit, or the disk is full; nothing is left of it.
            StoreError: the storage refused.
        """
        parts = list(file_parts(tensors))
        digest, size = hashlib.sha256(), 0
        for part in parts:
            view = memoryview(part)
            digest.update(view)
            size += view.nbytes
        self._make_room(size, record.reason)
        complete = replace(record, bytes=size, sha256=digest.hexdigest())
        try:
            self._put(tensors_key(record.name), parts)
            document = seal("snapshot", to_json(complete.to_json()).encode())
            self._put(record_key(record.name), [document])
        except StoreError:
            self._remove(record.name)
            raise
        self._kept[record.reason][record.name] = size
        for name in list(self._kept["periodic"])[: -self.settings.keep]:
            self._forget("periodic", name)
        return complete

    def _put(self, key: str, parts: list[bytes | bytearray | memoryview]) -> None:
        self.storage.put(key, parts)
        if isinstance(self.storage, LocalStorage):
            self.storage.sync(key)

    def _make_room(self, size: int, reason: Reason) -> None:
        """Remove periodic snapshots until another one fits.

        A jump is often harmless: beside its snapshot, one of non-finite gradients must fit.
        """
        limit = self.settings.max_bytes
        used = sum(sum(one.values()) for one in self._kept.values())
        fixed = sum(sum(self._kept[reason].values()) for reason in ("nonfinite", "jump"))
        jump = reason == "jump"
        if fixed + size * (1 + jump) > limit:
            beside = ", beside one of non-finite gradients" if jump else ""
            raise StoreFull(
                f"{self.storage.location}: a snapshot of {size >> 20} MiB does not fit into "
                f"snapshots.max_bytes = {limit} (used: {fixed}){beside}"
            )
        for name, taken in list(self._kept["periodic"].items()):
            if used + size <= limit:
                return
            used -= taken
            self._forget("periodic", name)

    def _forget(self, reason: Reason, name: str) -> None:
        del self._kept[reason][name]
        self._remove(name)

    def _remove(self, name: str) -> None:
        # The record first: what is left without it is no snapshot.
        for key in (record_key(name), tensors_key(name), replay_key(name)):
            with suppress(StoreError):
                self.storage.delete(key)
        if isinstance(self.storage, LocalStorage):
            with suppress(StoreError):
                self.storage.delete_empty(f"{SnapshotRecord.KEY}/{name}")
