"""Listing the files of a folder of the run directory."""

from __future__ import annotations

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.plain_text import visible
from vinedresser.store.records.keys import stray_note

__all__ = ["known_keys", "strays"]


def strays(storage: Storage) -> list[str]:
    """Return a sentence for each file that has no name of the contract but lies among those.

    Readers ignore such files. Files elsewhere in the run directory are the user's own.

    Raises:
        StoreError: the storage refused.
    """
    notes = map(stray_note, storage.list(""))
    return [visible(f"{storage.location}/{note}") for note in notes if note is not None]


def known_keys(storage: Storage, folder: str, faults: list[str]) -> list[str]:
    """Return the keys of a folder that the contract has, sorted.

    Args:
        storage: the run's storage.
        folder: such as "heartbeat".
        faults: receives a sentence if something else is in place of the folder.

    Raises:
        StoreError: the storage refused.
    """
    try:
        keys = storage.list(f"{folder}/")
    except CorruptData as error:
        faults.append(str(error))
        return []
    return [key for key in keys if stray_note(key) is None]
