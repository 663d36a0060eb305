"""What data sets have fed to the ranks of a run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.store.json_values import check_time
from vinedresser.store.records.listing import known_keys
from vinedresser.store.records.record import Record, read_record

__all__ = ["FedRecord", "fed_records"]


@dataclass(frozen=True)
class FedRecord(Record):
    """What the data sets of `vinedresser.data` have fed to a rank, written by its hook.

    Attributes:
        time: seconds since the epoch.
        data_sets: for each ``objects``, ``records``, ``iterations`` and ``damaged``, the numbers of
            objects fed, of records, of iterations and of damaged records left out; ``seconds`` by
            stage; ``fed``, URI, records and iterations of the first objects; ``left_out``, URI,
            record and byte of the first damaged records.
    """

    KEY: ClassVar[str] = "fed"

    rank: int
    time: float
    data_sets: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """Refuse what readers cannot add up."""
        check_time("time", self.time)
        for data_set in self.data_sets:
            if not all(type(data_set[name]) is int for name in ("objects", "records", "damaged")):
                raise TypeError("numbers of objects and records must be integers")

    def total(self, name: str) -> int:
        """Return the sum of a number over the data sets."""
        return sum(data_set[name] for data_set in self.data_sets)


def fed_records(storage: Storage) -> list[FedRecord]:
    """Return the records of all ranks, without corrupt ones.

    Raises:
        StoreError: the storage refused.
    """
    found = []
    for key in known_keys(storage, FedRecord.KEY, []):
        with suppress(CorruptData):
            found.append(read_record(storage, FedRecord, key=key))
    return [one for one in found if one is not None]
